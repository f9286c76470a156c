"""What a tokenizer is to the rest of the trainer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from neoxlite.errors import DataError

END_OF_TEXT = "<|endoftext|>"
PADDING = "<|padding|>"


class Tokenizer(Protocol):
    """Text to token ids and back.

    Attributes:
        vocab_size: ids go from 0 to vocab_size - 1, before any padding of the embedding.
        eod: id that ends a document; None where the vocabulary has none.
        pad: id that pads; None where the vocabulary has none.
    """

    @property
    def vocab_size(self) -> int: ...
    @property
    def eod(self) -> int | None: ...
    @property
    def pad(self) -> int | None: ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; none for an empty one."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, as `encode` would, on as many threads as the library uses."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids. Bytes that are no UTF-8 become U+FFFD."""


def encodable(text: str) -> str:
    """Return ``text`` with lone surrogates, which JSON may hold and UTF-8 may not, replaced by "?"."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", errors="replace").decode()
    return text


def library_missing(what: str, library: str, extra: str, error: ImportError) -> DataError:
    """Return the error of a library that cannot be imported, with the extra that brings it."""
    return DataError(
        f"{what} needs the library {library}, which cannot be imported ({error})",
        hint=f"Install it: pip install 'hpcjob[{extra}]'",
    )
