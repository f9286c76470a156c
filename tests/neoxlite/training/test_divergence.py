"""A run without finite numbers ends as failed and leaves the good checkpoints alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from neoxlite.checkpoint.folder import saved_iterations
from neoxlite.checkpoint.manifest import Manifest
from neoxlite.training.divergence import LIMIT, DivergedError, Divergence

NAN, INF = math.nan, math.inf


def test_gpt_neox_s_number_of_overflows_in_a_row_ends_a_run() -> None:
    """50 skipped steps with finite losses (fp16 overflows) end the run, 49 and one good step do not."""
    run = Divergence(0)
    run.add(49, [2.0] * 49, [INF] * 49, [True] * 49)
    run.check(None)
    assert not run.spoilt
    run.add(50, [2.0], [1.0], [False])
    run.add(99, [2.0] * 49, [INF] * 49, [True] * 49)
    run.check(None)
    run.add(100, [2.0], [INF], [True])
    with pytest.raises(DivergedError, match="the last 50 iterations have no finite loss"):
        run.check("ck/global_step50")
    assert LIMIT == 50


@pytest.mark.parametrize(
    ("loss", "norm", "skipped", "spoilt"),
    [(2.0, 1.0, False, False), (2.0, INF, True, False), (2.0, NAN, False, True), (NAN, NAN, True, True),
     (INF, 1.0, False, True)],
)  # fmt: skip
def test_what_may_be_saved(loss: float, norm: float, skipped: bool, spoilt: bool) -> None:
    """A step that was left out over a finite loss has not touched the weights; any other bad number may have."""
    run = Divergence(7)
    run.add(8, [loss], [norm], [skipped])
    assert run.spoilt is spoilt
    run.add(8, [2.0], [1.0], [False])  # counted before
    assert run.spoilt is spoilt
    run.add(9, [2.0], [1.0], [False])
    assert not run.spoilt


@pytest.mark.ci
@pytest.mark.parametrize("changes", [{}, {"zero_optimization": {"stage": 0}}, {"log_interval": 7}])
def test_a_diverging_run_fails_and_pushes_no_checkpoint_out(
    changes: dict[str, Any], train: Any, tmp_path: Path
) -> None:
    """A rate of 1e30 spoils the weights at once: no save follows, and the outcome says what to do."""
    root = tmp_path / "ck"
    where = {"save": str(root), "load": str(root), "checkpoint_factor": 1, "keep_last_n_checkpoints": 2}
    train(1, **where, train_iters=4)
    assert saved_iterations(root) == [3, 4]
    optimizer = {"type": "Adam", "params": {"lr": 1e30, "betas": [0.9, 0.95], "eps": 1e-8}}
    bad = {"optimizer": optimizer, "override_lr_scheduler": True, "warmup": 0.0, "train_iters": 200}
    with pytest.raises(AssertionError, match="training has diverged"):
        train(1, **{**where, **bad, **changes})
    # The step of 1e30 itself was taken with finite numbers; nothing behind it is saved.
    assert saved_iterations(root) == [4, 5]
    assert Manifest.read(root / "global_step4").damage(root / "global_step4") == []
    outcome = json.loads((tmp_path / "job1" / "outcome.json").read_text())
    assert outcome["outcome"] == "failed"
    assert outcome["iteration"] >= 4 + LIMIT
    assert "lower the learning rate" in outcome["message"]


def test_a_short_run_of_nan_alone_is_no_success(train: Any, tmp_path: Path) -> None:
    """Fewer iterations than the limit: the run has no weights worth saving at its end, and fails for that."""
    root = tmp_path / "ck"
    optimizer = {"type": "Adam", "params": {"lr": 1e30, "betas": [0.9, 0.95], "eps": 1e-8}}
    with pytest.raises(AssertionError, match="training has diverged"):
        train(2, save=str(root), checkpoint_factor=5, optimizer=optimizer, warmup=0.0)
    assert saved_iterations(root) == []
    assert json.loads((tmp_path / "job0" / "outcome.json").read_text())["outcome"] == "failed"
