"""GPT-2's vocabulary, which comes with the package: from its merges follow all other files of it."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Final

from neoxlite.tokenizers.base import END_OF_TEXT

MERGES_FILE: Final = Path(__file__).parent / "gpt2" / "vocab.bpe"


@lru_cache(maxsize=1)
def byte_characters() -> dict[int, str]:
    """Return the printable character that stands for each byte, in the order of the vocabulary.

    Printable bytes stand for themselves; the others take the characters from U+0100 up (src/encoder.py of GPT-2).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}


@lru_cache(maxsize=1)
def gpt2_merges() -> tuple[tuple[str, str], ...]:
    """Return the 50,000 merges."""
    lines = MERGES_FILE.read_text(encoding="utf-8").splitlines()[1:]
    pairs = (line.split(" ") for line in lines if line)
    return tuple((left, right) for left, right in pairs)


def gpt2_vocabulary() -> dict[str, int]:
    """Return token and id: the bytes, what the merges make, and the end of a document."""
    tokens = [*byte_characters().values(), *(left + right for left, right in gpt2_merges()), END_OF_TEXT]
    return {token: number for number, token in enumerate(tokens)}


def gpt2_ranks() -> dict[bytes, int]:
    """Return the bytes of each token but the last and its id, as tiktoken wants them."""
    byte_of = {character: byte for byte, character in byte_characters().items()}
    vocabulary = gpt2_vocabulary()
    del vocabulary[END_OF_TEXT]
    return {bytes(byte_of[character] for character in token): number for token, number in vocabulary.items()}


def vocabulary_json() -> str:
    """Return the vocabulary as OpenAI's encoder.json has it, byte for byte."""
    return json.dumps(gpt2_vocabulary())
