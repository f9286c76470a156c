"""Fixtures for tests of the tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.neoxlite.tokenizers.samples import TOKENIZER_JSON


@pytest.fixture(scope="session")
def gpt2_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write the golden tokenizer's vocabulary and merges in GPT-2's two files, in a folder with a Japanese name."""
    model = json.loads(TOKENIZER_JSON.read_text(encoding="utf-8"))["model"]
    folder = tmp_path_factory.mktemp("語彙")
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    return folder / "vocab.json", folder / "merges.txt"
