"""What a tokenizer is to the rest of the trainer."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from types import ModuleType
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


def needed_library(library: str, what: str, extra: str) -> ModuleType:
    """Import and return a module that ``what`` cannot do without.

    Raises:
        DataError: it cannot be imported, whatever its own code raises; with the extra that brings it.
    """
    try:
        module = importlib.import_module(library)
        if getattr(module, "__file__", None) is None:  # a folder that an installation or its removal has left
            raise ImportError(f"{list(getattr(module, '__path__', []))} holds no {library}")
    except Exception as error:
        raise DataError(
            f"{what} needs the library {library}, which cannot be imported ({reason_of(error)})",
            hint=f"install it: pip install 'hpcjob[{extra}]'",
        ) from error
    return module


def reason_of(error: BaseException) -> str:
    """Return the first line of a library's error, behind its class where that says more than a failed import."""
    text = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, ImportError | RuntimeError | ValueError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
