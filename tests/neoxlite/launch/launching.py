"""A configuration to launch, and the script of its launch."""

from __future__ import annotations

import re
from typing import Any

import pytest

from neoxlite.cli import main

KEYS: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "seq_length": 32,
    "max_position_embeddings": 32,
    "train_micro_batch_size_per_gpu": 1,
    "train_iters": 3,
    "data_path": "data/文書_text_document",
}
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HOME": "/nonexistent"}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the script of ``neoxlite launch`` for the configuration."""
    code = main(["launch", "--print", "-d", "configs", "run.yml", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def launch_line(script: str) -> str:
    """Return the words behind ``run_step``, on one line."""
    _, _, words = script.rpartition("\nrun_step ")
    return re.sub(r"\s*\\\n\s*", " ", words).strip()
