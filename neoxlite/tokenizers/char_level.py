"""One token per byte of UTF-8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class CharLevelTokenizer:
    """GPT-NeoX's CharLevelTokenizer (megatron/tokenizer/tokenizer.py at ea7aefd8): the ids are the bytes of the text.

    Ids are equal to upstream's. Decoding is not: upstream turns each byte into a character of its own, which loses all
    text outside ASCII and every newline; here the bytes are read as UTF-8 again.
    """

    vocab_size = 512
    eod = 0
    pad = 1

    def encode(self, text: str) -> list[int]:
        """Return the UTF-8 bytes of ``text``; a lone surrogate, which has none, becomes "?"."""
        return list(text.encode("utf-8", errors="replace"))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the bytes of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the bytes; ids from 256 up stand for no byte and become U+FFFD."""
        return bytes(number if 0 <= number < 256 else 0xFF for number in ids).decode("utf-8", errors="replace")
