"""Byte-pair tokenizers on the ``tokenizers`` library, which is imported when one is made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neoxlite.errors import DataError
from neoxlite.tokenizers.base import END_OF_TEXT, PADDING, encodable
from neoxlite.tokenizers.gpt2_vocabulary import gpt2_merges, gpt2_vocabulary
from neoxlite.tokenizers.kinds import read_text, wrong_kind

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


# Tokens of a vocabulary, besides one in a hundred, that may be none of its merges': special and added ones.
_UNMADE: Final = 16
_SPECIAL: Final = re.compile(r"<.+>")


class BytePairTokenizer:
    """Adapter of a ``tokenizers.Tokenizer``.

    Args:
        backend: the loaded tokenizer.
        keep_special: whether `decode` writes special tokens such as ``<|endoftext|>``, as GPT-2's tokenizer does.
        eod: token that ends documents.
    """

    def __init__(self, backend: Backend, *, keep_special: bool = False, eod: str = END_OF_TEXT) -> None:
        self.backend = backend
        self._keep_special = keep_special
        self.vocab_size: int = backend.get_vocab_size()
        self.eod: int | None = backend.token_to_id(eod)
        self.pad: int | None = backend.token_to_id(PADDING)

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``."""
        ids: list[int] = self.backend.encode(encodable(text)).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, on the threads of the library (RAYON_NUM_THREADS)."""
        return [encoding.ids for encoding in self.backend.encode_batch_fast([encodable(text) for text in texts])]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        text: str = self.backend.decode(list(ids), skip_special_tokens=not self._keep_special)
        return text


def load_tokenizer_json(path: Path) -> BytePairTokenizer:
    """Load a ``tokenizer.json`` of the Hugging Face library (GPT-NeoX's HFTokenizer).

    Raises:
        DataError: the file is missing or no tokenizer.
    """
    return BytePairTokenizer(_backend_of(path, "HFTokenizer"))


def load_gpt2(vocab_file: Path | None = None, merge_file: Path | None = None) -> BytePairTokenizer:
    """Load GPT-2's byte-level BPE (GPT-NeoX's GPT2BPETokenizer).

    As upstream, the string ``<|endoftext|>`` inside a text becomes the one token that ends documents.

    Args:
        vocab_file: ``vocab.json``; without it and ``merge_file`` GPT-2's own, which come with the package.
        merge_file: ``merges.txt``.

    Raises:
        DataError: a file is missing, damaged, or the two do not belong together.
    """
    if vocab_file is None or merge_file is None:
        return BytePairTokenizer(_byte_level(gpt2_vocabulary(), gpt2_merges()), keep_special=True)
    return BytePairTokenizer(_backend_of_two(vocab_file, merge_file, "GPT2BPETokenizer"), keep_special=True)


def load_hf_gpt2(folder: Path | None = None) -> BytePairTokenizer:
    """Load what GPT-NeoX's HFGPT2Tokenizer loads: a folder of Hugging Face files, plus ``<|padding|>``.

    Args:
        folder: with tokenizer.json, or vocab.json and merges.txt; without it GPT-2's own vocabulary.

    Raises:
        DataError: the folder or a file in it is missing or damaged.
    """
    from tokenizers import AddedToken

    eod = END_OF_TEXT
    if folder is None:
        backend = _byte_level(gpt2_vocabulary(), gpt2_merges())
    else:
        backend, eod = _backend_of_folder(folder)
    backend.add_special_tokens([AddedToken(PADDING, special=True)])
    return BytePairTokenizer(backend, keep_special=True, eod=eod)


def _backend_of_folder(folder: Path) -> tuple[Backend, str]:
    """Return the tokenizer in a folder and the token that ends documents."""
    if not folder.is_dir():
        raise wrong_kind("HFGPT2Tokenizer", "vocab_file", folder, "a folder of Hugging Face files")
    if (folder / "tokenizer.json").is_file():
        backend = _backend_of(folder / "tokenizer.json", "HFGPT2Tokenizer")
    else:
        backend = _backend_of_two(folder / "vocab.json", folder / "merges.txt", "HFGPT2Tokenizer")
    return backend, _end_of_text(folder)


def _end_of_text(folder: Path) -> str:
    """Return the eos_token of a folder's tokenizer_config.json or special_tokens_map.json, by default GPT-2's."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            told = json.loads(read_text(path, "vocab_file", "HFGPT2Tokenizer"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"vocab_file {path}: not JSON ({error})", hint="copy the folder again") from None
        token = told.get("eos_token") if isinstance(told, dict) else None
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            return token
    return END_OF_TEXT


def _backend_of(path: Path, tokenizer_type: str) -> Backend:
    from tokenizers import Tokenizer as Backend

    text = read_text(path, "vocab_file", tokenizer_type)
    try:
        return Backend.from_str(text)
    except Exception as error:  # the library raises Exception itself, whatever is wrong with the file
        raise wrong_kind(tokenizer_type, "vocab_file", path, "a tokenizer.json", f"no tokenizer ({error})") from error


def _backend_of_two(vocab_file: Path, merge_file: Path, tokenizer_type: str) -> Backend:
    vocabulary = _read_vocabulary(vocab_file, tokenizer_type)
    merges = _read_merges(merge_file, tokenizer_type)
    _check_complete(vocabulary, merges, vocab_file, merge_file)
    try:
        backend = _byte_level(vocabulary, merges)
    except Exception as error:  # the library raises Exception itself when a merge is not in the vocabulary
        raise DataError(
            f"merge_file {merge_file} does not fit vocab_file {vocab_file}: {error}",
            hint="give the vocabulary and the merges of the same tokenizer",
        ) from error
    if END_OF_TEXT not in vocabulary:
        raise DataError(
            f"vocab_file {vocab_file}: there is no {END_OF_TEXT}, which ends documents in {tokenizer_type}",
            hint="give GPT-2's vocab.json, or use tokenizer_type: HFTokenizer with a tokenizer.json",
        )
    return backend


def _check_complete(
    vocabulary: dict[str, int], merges: Sequence[tuple[str, str]], vocab_file: Path, merge_file: Path
) -> None:
    """Refuse merges that break off, which between two lines would be a tokenizer with shorter tokens."""
    made = {left + right for left, right in merges}
    unmade = [token for token in vocabulary if len(token) > 1 and token not in made and not _SPECIAL.fullmatch(token)]
    if len(unmade) > max(_UNMADE, len(vocabulary) // 100):
        raise DataError(
            f"merge_file {merge_file}: {len(unmade):,} tokens of vocab_file {vocab_file} are made by no merge, "
            f"{unmade[0]!r} the first",
            hint=f"the file has {len(merges):,} merges: is it truncated? give the merges that belong to the vocabulary",
        )


def _byte_level(vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]) -> Backend:
    """Return GPT-2's tokenizer over a vocabulary. Raises Exception where a merge is not in the vocabulary."""
    from tokenizers import AddedToken, decoders, pre_tokenizers
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import BPE

    backend = Backend(BPE(vocab=vocabulary, merges=list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if END_OF_TEXT in vocabulary:
        backend.add_special_tokens([AddedToken(END_OF_TEXT, special=True)])
    return backend


def _read_vocabulary(path: Path, tokenizer_type: str) -> dict[str, int]:
    expected = "a vocab.json: an object of token and id"
    text = read_text(path, "vocab_file", tokenizer_type)
    try:
        vocabulary: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise wrong_kind(
            tokenizer_type, "vocab_file", path, expected, f"not JSON ({error.msg})", line=error.lineno
        ) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise wrong_kind(tokenizer_type, "vocab_file", path, expected, f"not JSON ({error})") from None
    if not isinstance(vocabulary, dict) or not all(type(number) is int for number in vocabulary.values()):
        raise wrong_kind(tokenizer_type, "vocab_file", path, expected, "not an object of token and id")
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise DataError(
            f"vocab_file {path}: the ids are not 0 to {len(vocabulary) - 1}, each once",
            hint=f"{tokenizer_type} needs {expected}",
        )
    return vocabulary


def _read_merges(path: Path, tokenizer_type: str) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(read_text(path, "merge_file", tokenizer_type).split("\n"), start=1):
        # The first line names the format's version; a later "#" is a token.
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        pair = line.split()
        if len(pair) != 2:
            raise DataError(
                f"merge_file {path}:{number}: {line[:60]!r} is not a pair of tokens",
                hint=f"{tokenizer_type} needs a merges.txt: two tokens a line",
            )
        merges.append((pair[0], pair[1]))
    return merges
