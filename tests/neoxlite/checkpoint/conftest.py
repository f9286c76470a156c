"""Checkpoints to look at and to damage: one that a run of two ranks wrote, and small ones made without a run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from forked_worlds import tiny_config, train_rank

from tests.neoxlite.checkpoint.made import save_numbers


@pytest.fixture(scope="session")
def saved(world: Any, text_data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train 10 iterations on two ranks and return the folder with the checkpoints of iterations 5 and 10."""
    from neoxlite.training.environment import RunFiles

    base = tmp_path_factory.mktemp("保存 先")
    root = base / "チェックポイント"
    cfg = tiny_config(base / "run.yml", 2, data_path=text_data, save=str(root), checkpoint_factor=5)
    world.run(2, train_rank, cfg, RunFiles(), {})
    return root


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """Return a copy of the two checkpoints, to damage."""
    return Path(shutil.copytree(saved, tmp_path / "ck"))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a folder with checkpoints of iterations 5 and 10 that hold numbers and no model."""
    root = tmp_path / "保存 先"
    for iteration in (5, 10):
        save_numbers(root, iteration)
    return root
