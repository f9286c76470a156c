"""Warnings at a resume: behind the end of the learning-rate schedule, and without the optimizer's moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from forked_worlds import tiny_config

from neoxlite.errors import ConfigError
from neoxlite.optim.schedule import Schedule
from neoxlite.training.resume import begins_anew, behind_the_decay


def _schedule(style: str, warmup_iter: float = 3200.0) -> Schedule:
    return Schedule(1.6e-4, 1.6e-5, warmup_iter, 320000, style)


def test_a_cosine_that_rises_again_is_told() -> None:
    """GPT-NeoX clamps nothing: 10,000 steps behind the end its rate is 1.635373e-05, above min_lr, and climbs on."""
    told = behind_the_decay(_schedule("cosine"), 330001)
    assert told is not None
    assert "ends at iteration 320000, training at 330001" in told
    assert "to 1.635E-05; lr_decay_iters: 330001 stretches" in told
    assert behind_the_decay(_schedule("cosine"), 320000) is None
    assert behind_the_decay(_schedule("linear"), 330001) is None


@pytest.mark.parametrize("style", ["linear", "cosine", "exponential"])
def test_a_decay_without_length_is_refused(style: str) -> None:
    """warmup: 1.0 divides by 0 at the first step behind it, in GPT-NeoX too; a constant rate has nothing to divide."""
    flat = _schedule(style, 320000.0)
    assert behind_the_decay(flat, 320000) is None
    with pytest.raises(ConfigError, match="its warm-up is the whole decay, 320000 iterations"):
        behind_the_decay(flat, 320001)
    assert behind_the_decay(_schedule("constant", 320000.0), 320001) is None


@pytest.mark.parametrize(
    ("keys", "saved", "told"),
    [
        ({"save": "ck/"}, {}, None),
        (
            {"save": "ck", "no_load_optim": True},
            {},
            "no_load_optim: the optimizer restarts at iteration 40, without",
        ),
        ({"save": "new", "no_load_optim": True}, {}, None),  # once: a restart goes on from new
        ({"no_load_optim": True}, {}, None),
        (
            {"save": "ck"},
            {"with_optimizer": False},
            "ck/global_step40 was saved without the optimizer: the optimizer restarts",
        ),
        (
            {"save": "ck", "no_save_optim": True},
            {"with_optimizer": False},
            "; no_save_optim: so does each restart, unless",
        ),
        ({"save": "ck"}, {"with_optimizer": False, "iteration": 0}, None),
    ],
)
def test_moments_that_are_lost_are_told(
    keys: dict[str, Any], saved: dict[str, Any], told: str | None, tmp_path: Path
) -> None:
    """A key that was meant for the first start drops them at every restart, until somebody is told."""
    cfg = tiny_config(tmp_path / "run.yml", load="ck", checkpoint_factor=5, **keys)
    warning = begins_anew(Path("ck/global_step40"), cfg, {"iteration": 40, "with_optimizer": True, **saved})
    assert (warning is None) == (told is None)
    assert warning is None or (warning.startswith("WARNING: ") and told is not None and told in warning)
