"""SentencePiece models on the ``sentencepiece`` library, which is imported when one is loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from neoxlite.errors import DataError
from neoxlite.tokenizers.base import END_OF_TEXT, encodable
from neoxlite.tokenizers.kinds import detect_kind, missing, wrong_kind

_LOG = logging.getLogger(__name__)
_LENGTH_DELIMITED: Final = 2  # protobuf's kind of field whose length is given
_NORMALISER: Final = 3


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
        raise missing("SPMTokenizer", "vocab_file", path, error.strerror or str(error)) from error
    if not data:
        raise wrong_kind("SPMTokenizer", "vocab_file", path, expected)
    _check_whole(path, data)
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(data)
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"vocab_file {path}: the SentencePiece model is damaged ({error})", hint="copy the file again"
        ) from error
    return processor


def _check_whole(path: Path, data: bytes) -> None:
    """Refuse a model that is cut off, which between two pieces the library takes for a smaller one.

    A model is a protobuf message: pieces (field 1), how it was trained (2), how text is normalised (3), and more
    (sentencepiece_model.proto, ``ModelProto``).
    """
    position, fields = 0, set()
    while position < len(data):
        tag, start = _varint(data, position)
        length, start = _varint(data, start)
        if tag & 7 != _LENGTH_DELIMITED or start + length > len(data):
            raise DataError(
                f"vocab_file {path}: the SentencePiece model is damaged or truncated at byte {position}",
                hint="copy the file again",
            )
        fields.add(tag >> 3)
        position = start + length
    if _NORMALISER not in fields:
        raise DataError(
            f"vocab_file {path}: the SentencePiece model is truncated at byte {len(data)}: it does not record how "
            "text is normalised",
            hint="copy the file again",
        )


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of protobuf's and the place behind it; a number that breaks off is larger than any file."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            return 1 << 70, position
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            break
    return number, position
