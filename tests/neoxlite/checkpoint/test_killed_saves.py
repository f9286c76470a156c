"""A process killed at any point of a save: what is named a checkpoint is whole, and the latest is there."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from neoxlite.checkpoint.folder import find, saved_iterations, step_name
from neoxlite.checkpoint.manifest import Manifest
from tests.neoxlite.checkpoint.made import TRAINING

KEPT = 2


def _save(root: Path, iteration: int) -> None:
    """Save two files full of the iteration's number, through the path of every save."""
    import torch

    from neoxlite.checkpoint.save import Contents, Together, write
    from neoxlite.checkpoint.share import TensorFile
    from neoxlite.parallel.topology import Topology

    files = [
        TensorFile(f"layer_{index:02d}.safetensors", {"weight": torch.full((1 << 17,), float(iteration))})
        for index in range(2)
    ]
    contents = Contents({**TRAINING, "iteration": iteration}, {"config.yml": b"x", "configs/a.yml": b"y"})
    write(root, Together(Topology()), files, contents, keep_last=KEPT)


def _save_for_ever(ranks: Any, root: Path) -> None:
    """Save iteration after iteration, each of them twice: the second time it takes the place of the first."""
    iteration = max(saved_iterations(root), default=0)
    while True:
        iteration += 1
        _save(root, iteration)
        _save(root, iteration)


@pytest.mark.parametrize("kills", [pytest.param(20, marks=pytest.mark.ci), pytest.param(200, marks=pytest.mark.full)])
def test_a_kill_at_a_random_point_leaves_whole_checkpoints(kills: int, world: Any, tmp_path: Path) -> None:
    """SIGKILL while saves follow each other: every folder of a checkpoint is whole, none older than the latest is lost.

    The kills fall at random into the time of some saves; the next process goes on in the same folder.
    """
    root = tmp_path / "チェックポイント"
    began = time.monotonic()
    for iteration in (1, 2):
        _save(root, iteration)
    of_a_save_s = (time.monotonic() - began) / 2
    delays = np.random.default_rng(20261129).uniform(0, 4 * of_a_save_s, kills)
    latest, leftovers = 2, 0
    for delay_s in delays:
        (child,) = world.start(1, _save_for_ever, root)
        time.sleep(delay_s)
        os.kill(child.process.pid, signal.SIGKILL)
        child.end()
        leftovers += any(root.glob(".global_step*"))
        latest = _check(root, latest)
    assert leftovers  # some kills hit a save, not the time between two
    _save(root, latest + 1)
    assert saved_iterations(root) == [latest, latest + 1]
    assert not [path for path in root.iterdir() if path.name.startswith(".")]


def _check(root: Path, before: int) -> int:
    """Check all that can be found, and return the latest iteration, which is none before ``before``."""
    folder = find(root)
    assert folder is not None
    for iteration in saved_iterations(root):
        path = root / step_name(iteration)
        manifest = Manifest.read(path)
        assert manifest.damage(path) == []
        assert manifest.training["iteration"] == iteration
        for file in path.glob("*.safetensors"):
            assert set(load_file(file)["weight"].tolist()) == {float(iteration)}
    latest = int(folder.name.removeprefix("global_step"))
    assert latest >= before
    return latest
