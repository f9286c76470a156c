"""Golden tokenizers, and facts about OpenAI's encodings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "tokenized"
TOKENIZER_JSON = GOLDEN / "own_bpe_tokenizer.json"


def openai_encoding(name: str) -> dict[str, Any]:
    """Ask the library what it would load for an encoding, without letting it."""
    import tiktoken_ext.openai_public as public

    told: dict[str, Any] = {}

    def record(url: str, expected_hash: str) -> dict[bytes, int]:
        told.update(url=url, sha256=expected_hash)
        return {bytes([byte]): byte for byte in range(256)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(public, "load_tiktoken_bpe", record)
        told |= getattr(public, name)()
    return told
