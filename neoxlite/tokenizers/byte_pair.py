"""Byte-pair tokenizers on the ``tokenizers`` library, which is imported when one is made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neoxlite.errors import DataError
from neoxlite.tokenizers.base import END_OF_TEXT, PADDING

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


class BytePairTokenizer:
    """Adapter of a ``tokenizers.Tokenizer``.

    Args:
        backend: the loaded tokenizer.
        keep_special: whether `decode` writes special tokens such as ``<|endoftext|>``, as GPT-2's tokenizer does.
    """

    def __init__(self, backend: Backend, *, keep_special: bool = False) -> None:
        self.backend = backend
        self._keep_special = keep_special
        self.vocab_size: int = backend.get_vocab_size()
        self.eod: int | None = backend.token_to_id(END_OF_TEXT)
        self.pad: int | None = backend.token_to_id(PADDING)

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``."""
        ids: list[int] = self.backend.encode(_encodable(text)).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, on the threads of the library (RAYON_NUM_THREADS)."""
        return [encoding.ids for encoding in self.backend.encode_batch_fast([_encodable(text) for text in texts])]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        text: str = self.backend.decode(list(ids), skip_special_tokens=not self._keep_special)
        return text


def _encodable(text: str) -> str:
    """Return ``text`` with lone surrogates, which JSON may hold and UTF-8 may not, replaced by "?"."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", errors="replace").decode()
    return text


def load_tokenizer_json(path: Path) -> BytePairTokenizer:
    """Load a ``tokenizer.json`` of the Hugging Face library (GPT-NeoX's HFTokenizer).

    Raises:
        DataError: the file is missing or no tokenizer.
    """
    from tokenizers import Tokenizer as Backend

    text = _read_text(path, "vocab_file")
    try:
        return BytePairTokenizer(Backend.from_str(text))
    except Exception as error:  # the library raises Exception itself, whatever is wrong with the file
        raise DataError(
            f"vocab_file {path}: no tokenizer ({error})",
            hint="HFTokenizer needs a tokenizer.json; `neoxlite data train-tokenizer` writes one.",
        ) from error


def load_gpt2(vocab_file: Path, merge_file: Path) -> BytePairTokenizer:
    """Load GPT-2's byte-level BPE from ``vocab.json`` and ``merges.txt`` (GPT-NeoX's GPT2BPETokenizer).

    As upstream, the string ``<|endoftext|>`` inside a text becomes the one token that ends documents.

    Raises:
        DataError: a file is missing, damaged, or the two do not belong together.
    """
    from tokenizers import AddedToken, decoders, pre_tokenizers
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import BPE

    vocabulary = _read_vocabulary(vocab_file)
    merges = _read_merges(merge_file)
    try:
        backend = Backend(BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # the library raises Exception itself when a merge is not in the vocabulary
        raise DataError(
            f"merge_file {merge_file} does not fit vocab_file {vocab_file}: {error}",
            hint="Give the vocabulary and the merges of the same tokenizer.",
        ) from error
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if END_OF_TEXT not in vocabulary:
        raise DataError(
            f"vocab_file {vocab_file}: there is no {END_OF_TEXT}, which ends documents in GPT2BPETokenizer",
            hint="Give GPT-2's vocab.json, or use tokenizer_type: HFTokenizer with a tokenizer.json.",
        )
    backend.add_special_tokens([AddedToken(END_OF_TEXT, special=True)])
    return BytePairTokenizer(backend, keep_special=True)


def _read_text(path: Path, key: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{key} {path}: not UTF-8 text ({error.reason} at byte {error.start})", hint=f"Set {key}."
        ) from None
    except OSError as error:
        raise DataError(f"{key} {path}: {error.strerror}", hint=f"Set {key} to the tokenizer's file.") from error


def _read_vocabulary(path: Path) -> dict[str, int]:
    hint = "GPT2BPETokenizer needs a vocab.json: an object of token and id."
    try:
        vocabulary: Any = json.loads(_read_text(path, "vocab_file"))
    except json.JSONDecodeError as error:
        raise DataError(f"vocab_file {path}:{error.lineno}: not JSON ({error.msg})", hint=hint) from None
    if not isinstance(vocabulary, dict) or not all(type(number) is int for number in vocabulary.values()):
        raise DataError(f"vocab_file {path}: not an object of token and id", hint=hint)
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise DataError(f"vocab_file {path}: the ids are not 0 to {len(vocabulary) - 1}, each once", hint=hint)
    return vocabulary


def _read_merges(path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(_read_text(path, "merge_file").split("\n"), start=1):
        # The first line names the format's version; a later "#" is a token.
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        pair = line.split()
        if len(pair) != 2:
            raise DataError(
                f"merge_file {path}:{number}: {line[:60]!r} is not a pair of tokens",
                hint="GPT2BPETokenizer needs a merges.txt: two tokens a line.",
            )
        merges.append((pair[0], pair[1]))
    return merges
