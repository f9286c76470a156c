"""Configurations of models alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def golden_config(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that resolves a model's keys, with the training keys that a configuration cannot be without."""

    def make(**keys: Any) -> Any:
        from neoxlite.config import load_config

        path = tmp_path / "model.yml"
        path.write_text(yaml.safe_dump({"train_micro_batch_size_per_gpu": 1, "train_iters": 1, **keys}))
        return load_config(path, allow_unsupported=True)

    return make
