"""A checkpoint's tokenizer as files of a Hugging Face folder, proved by the ids that both give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from neoxlite.config import NeoxConfig
from neoxlite.convert.compare import PROMPT, quiet
from neoxlite.convert.hf_folder import write_json
from neoxlite.convert.staging import write_file
from neoxlite.errors import CheckpointError
from neoxlite.tokenizers import PADDING, Tokenizer
from neoxlite.tokenizers.base import needed_library
from neoxlite.tokenizers.gpt2_vocabulary import byte_characters

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# What a folder of transformers may hold besides weights, and what of it belongs to the tokenizer.
FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt")
COMPANIONS = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
)
_TEXTS = (
    PROMPT,
    "  two  spaces\n\n\ttab\r\n",
    "<|endoftext|>",
    "日本語のテキスト、🙂 ﾊﾝｶｸ é",
    "1234567890 !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
)
_LEAVE_OUT = "omit the tokenizer with --no-tokenizer"


def write_tokenizer(target: Path, cfg: NeoxConfig, tokenizer: Tokenizer, max_length: int) -> None:
    """Write tokenizer files to ``target`` with which AutoTokenizer gives the ids that training used.

    Raises:
        CheckpointError: there is no such thing for this tokenizer.
        OSError: a file cannot be written.
    """
    given = Path(cfg.vocab_file) if cfg.vocab_file else None
    home = given if given is not None and given.is_dir() else given.parent if given is not None else None
    if home is not None and (home / "tokenizer_config.json").is_file():
        for name in (*FILES, *COMPANIONS):
            if (home / name).is_file():
                write_file(target / name, (home / name).read_bytes())
    else:
        write_file(target / "tokenizer.json", _backend(cfg, tokenizer).to_str(pretty=True).encode())
        write_json(target / "tokenizer_config.json", _settings(cfg, tokenizer, max_length))
    _prove(target, cfg, tokenizer)


def _settings(cfg: NeoxConfig, tokenizer: Tokenizer, max_length: int) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }
    backend = getattr(tokenizer, "backend", None)
    if backend is not None and tokenizer.eod is not None:
        word = backend.id_to_token(tokenizer.eod)
        settings |= {"bos_token": word, "eos_token": word, "unk_token": word}
    if backend is not None and tokenizer.pad is not None:
        settings["pad_token"] = PADDING
    return settings


def _backend(cfg: NeoxConfig, tokenizer: Tokenizer) -> Backend:
    """Return the tokenizer as one of the ``tokenizers`` library."""
    kind = cfg.tokenizer_type.lower()
    backend: Backend | None = getattr(tokenizer, "backend", None)
    if backend is not None:
        return backend
    if kind == "charleveltokenizer":
        return _bytes(tokenizer.vocab_size)
    if kind == "tiktokentokenizer" and cfg.vocab_file in ("gpt2", "r50k_base"):
        from neoxlite.tokenizers.byte_pair import load_gpt2

        return load_gpt2().backend
    if kind == "spmtokenizer" and cfg.vocab_file:
        from neoxlite.convert.sentence_piece import backend_of

        return backend_of(Path(cfg.vocab_file))
    raise CheckpointError(
        f"tokenizer_type: {cfg.tokenizer_type} ({cfg.vocab_file}) has no form that transformers reads",
        hint=_LEAVE_OUT,
        exit_code=2,
    )


def _bytes(vocab_size: int) -> Backend:
    """Return a tokenizer with one token a byte, whose id is the byte; ids behind them stand for nothing."""
    needed_library("tokenizers", "a tokenizer for transformers", "train")
    from tokenizers import Tokenizer as Made
    from tokenizers import decoders, pre_tokenizers
    from tokenizers.models import BPE

    vocabulary = {character: byte for byte, character in byte_characters().items()}
    vocabulary |= {f"<|unused {number}|>": number for number in range(256, vocab_size)}
    backend = Made(BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _prove(target: Path, cfg: NeoxConfig, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError unless AutoTokenizer gives the same ids."""
    with quiet():
        from transformers import AutoTokenizer

        try:
            theirs = AutoTokenizer.from_pretrained(target, local_files_only=True)
        except Exception as error:  # transformers raises all kinds
            raise CheckpointError(
                f"{cfg.tokenizer_type}: AutoTokenizer cannot read the files: {str(error).splitlines()[0]}",
                hint=_LEAVE_OUT,
                exit_code=2,
            ) from None
        for text in _TEXTS:
            ours = tokenizer.encode(text)
            # A tokenizer.json may put a token before every text: upstream's HFTokenizer does then too.
            if ours not in (theirs.encode(text), theirs.encode(text, add_special_tokens=False)):
                raise CheckpointError(
                    f"{cfg.tokenizer_type}: AutoTokenizer gives other ids for {text[:24]!r} than training used",
                    hint=_LEAVE_OUT,
                    exit_code=2,
                )


def generation_config(tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return the entries of generation_config.json that a tokenizer decides."""
    if tokenizer is None:
        return {}
    ids = {"bos_token_id": tokenizer.eod, "eos_token_id": tokenizer.eod, "pad_token_id": tokenizer.pad}
    return {key: value for key, value in ids.items() if value is not None}


def detect(folder: Path) -> dict[str, str]:
    """Return tokenizer_type and file names (keys vocab_file, merge_file) of a Hugging Face folder.

    Raises:
        CheckpointError: there is no tokenizer in it that neoxlite has.
    """
    if (folder / "tokenizer.json").is_file():
        return {"tokenizer_type": "HFTokenizer", "vocab_file": "tokenizer.json"}
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return {"tokenizer_type": "GPT2BPETokenizer", "vocab_file": "vocab.json", "merge_file": "merges.txt"}
    if (folder / "tokenizer.model").is_file():
        return {"tokenizer_type": "SPMTokenizer", "vocab_file": "tokenizer.model"}
    raise CheckpointError(
        f"{folder} has no tokenizer.json, vocab.json with merges.txt, or tokenizer.model",
        hint="save the tokenizer into it, or give the folder of one with --tokenizer DIR",
        exit_code=2,
    )


def companions(folder: Path) -> dict[str, bytes]:
    """Return the tokenizer's files of a folder by name."""
    return {name: (folder / name).read_bytes() for name in (*FILES, *COMPANIONS) if (folder / name).is_file()}


def ids_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the special tokens' ids of a config.json."""
    keys = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {key: config[key] for key in keys if config.get(key) is not None}
