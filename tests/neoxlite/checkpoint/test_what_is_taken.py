"""What a run takes from a checkpoint: all of it, another iteration's, the weights alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neoxlite.checkpoint.manifest import Manifest


def _training(folder: Path) -> dict[str, Any]:
    return Manifest.read(folder).training


@pytest.mark.ci
def test_finetune_no_load_optim_no_save_optim_and_iteration(train: Any, tmp_path: Path) -> None:
    """Position, count of optimizer steps and learning rate of the runs that go on, and their first loss."""
    root = tmp_path / "ck"
    first = train(1, save=str(root), checkpoint_factor=5)
    more = {"load": str(root), "checkpoint_factor": 5, "override_lr_scheduler": True, "train_iters": 12}

    whole = train(1, **more, save=str(tmp_path / "whole"))
    earlier = train(1, **{**more, "train_iters": 10}, save=str(tmp_path / "earlier"), iteration=5)
    assert [entry["iteration"] for entry in earlier.metrics] == [6, 7, 8, 9, 10]
    assert earlier.losses == first.losses[5:]

    without = train(1, **more, save=str(tmp_path / "without"), no_load_optim=True)
    assert [entry["iteration"] for entry in without.metrics] == [11, 12]
    assert without.losses[0] == whole.losses[0]  # the same weights and samples
    assert without.losses[1] != whole.losses[1]  # after a step without moments
    told = {name: _training(tmp_path / name / "global_step12") for name in ("whole", "without")}
    assert {name: (t["iteration"], t["optimizer_step"]) for name, t in told.items()} == {
        "whole": (12, 12),
        "without": (12, 2),
    }

    tuned = train(1, **{**more, "train_iters": 3}, save=str(tmp_path / "tuned"), finetune=True)
    assert [entry["iteration"] for entry in tuned.metrics] == [1, 2, 3]
    assert tuned.losses[0] < first.losses[0]  # the samples of iteration 1, by trained weights
    training = _training(tmp_path / "tuned" / "global_step3")
    assert (training["iteration"], training["consumed_samples"], training["optimizer_step"]) == (3, 12, 3)

    train(1, save=str(tmp_path / "bare"), checkpoint_factor=10, no_save_optim=True)
    folder = tmp_path / "bare" / "global_step10"
    assert not list(folder.glob("optimizer_*"))
    again = train(1, **{**more, "load": str(tmp_path / "bare")})
    assert again.losses == without.losses
