"""What a run takes from a checkpoint: all of it, another iteration's, the weights alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from forked_worlds import stop_file

from neoxlite.checkpoint.manifest import Manifest
from neoxlite.checkpoint.start import begun_before
from neoxlite.errors import CheckpointError


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


def test_a_run_that_began_elsewhere_goes_on_from_its_own(
    train: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A job that is started anew has the load, finetune and no_load_optim of its first start: it began again at
    iteration 0 each time, and wrote over its checkpoints. In two parts the losses are those of the whole."""
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    train(1, save=str(base), checkpoint_factor=5, train_iters=5)
    keys = {"load": str(base), "finetune": True, "no_load_optim": True, "train_iters": 6}
    whole = train(1, **keys)
    where = {"save": str(tuned), "checkpoint_factor": 3}
    stopped = train(1, **keys, **where, at={3: stop_file("walltime")})
    again = train(1, **keys, **where)
    assert [entry["iteration"] for entry in again.metrics] == [5, 6]
    assert stopped.losses + again.losses == whole.losses
    told = f"this run began from {base} before: it continues from {tuned / 'global_step4'}"
    assert capfd.readouterr().out.count(told) == 1


def test_checkpoints_of_another_run_are_not_written_over(made: Path, tmp_path: Path) -> None:
    """What lies in save behind the place to begin from, and did not begin there, is refused; earlier ones are not."""
    other = tmp_path / "other"
    with pytest.raises(
        CheckpointError, match="up to iteration 10, which do not record that their run began from load"
    ) as caught:
        begun_before(other, made, 9)
    assert caught.value.hint is not None
    assert f"to continue from them, set load: {made}" in caught.value.hint
    assert begun_before(other, made, 10) is None
    assert begun_before(made, other, -1) is None


def test_finetune_into_its_own_folder_is_refused(config_of: Any, made: Path) -> None:
    """Checkpoints from iteration 0 on would lie between those that they began from."""
    from neoxlite.training.resume import find_start

    cfg = config_of(1, load=str(made), save=f"{made}/", checkpoint_factor=5, finetune=True)
    with pytest.raises(CheckpointError, match="finetune: load and save are one folder"):
        find_start(cfg)
