"""SentencePiece models on the ``sentencepiece`` library, which is imported when one is loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from neoxlite.errors import DataError
from neoxlite.tokenizers.base import END_OF_TEXT, encodable
from neoxlite.tokenizers.kinds import detect_kind, wrong_kind

_LOG = logging.getLogger(__name__)


class SentencePieceTokenizer:
    """GPT-NeoX's SPMTokenizer (megatron/tokenizer/tokenizer.py at ea7aefd8).

    As upstream, ``<|endoftext|>`` ends documents, and the unknown piece does where the model has no such piece.

    Args:
        path: the .model file.

    Raises:
        DataError: the file is missing, damaged or no model.
    """

    pad: int | None = None

    def __init__(self, path: Path) -> None:
        self._processor = _load(path)
        self.vocab_size: int = self._processor.get_piece_size()
        self.eod: int | None = self._processor.piece_to_id(END_OF_TEXT)
        if self.eod == self._processor.unk_id():
            _LOG.warning("%s has no piece %s: documents end with the unknown piece, as upstream", path, END_OF_TEXT)

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``."""
        ids: list[int] = self._processor.encode(encodable(text))
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; ids outside the vocabulary, which padding may add, give nothing."""
        text: str = self._processor.decode([number for number in ids if 0 <= number < self.vocab_size])
        return text


def _load(path: Path) -> Any:
    from sentencepiece import SentencePieceProcessor

    expected = "a SentencePiece .model (spm)"
    try:
        kind = detect_kind(path)
        data = path.read_bytes() if kind == "spm" else b""
    except OSError as error:
        raise DataError(
            f"vocab_file {path}: {error.strerror}", hint="Set vocab_file to the .model file of SentencePiece."
        ) from error
    if not data:
        raise wrong_kind("SPMTokenizer", "vocab_file", path, expected)
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(data)
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"vocab_file {path}: the SentencePiece model is damaged ({error})", hint="Copy the file again."
        ) from error
    return processor
