"""The golden data of GPT-NeoX, and a small configuration to write and spoil."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from neoxlite.config import NeoxConfig

GOLDEN = Path(__file__).parents[2] / "golden"

MINIMAL: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "seq_length": 128,
    "max_position_embeddings": 128,
    "train_iters": 100,
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.9, 0.95]}},
}

Load = Callable[..., NeoxConfig]


def golden(name: str) -> Any:
    """Read a JSON file of the golden data."""
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def minimal_text(**changes: Any) -> str:
    """Return the small configuration as YAML, with keys changed, or left out where the value is `...`."""
    values = {key: value for key, value in {**MINIMAL, **changes}.items() if value is not ...}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
