"""The learning-rate schedule against rates recorded from GPT-NeoX."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neoxlite.errors import CheckpointError, ConfigError
from neoxlite.optim.schedule import STYLES, Schedule, resumed_schedule

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "lr" / "lr.json").read_text())
CASES = [case for case in GOLDEN["cases"] if case["inputs"]["lr_decay_style"] in STYLES]


def schedule_of(inputs: dict[str, Any]) -> Schedule:
    """Return the schedule of a golden case's keys."""
    defaults = {"lr_decay_iters": None, "lr_decay_fraction": None}
    return Schedule.from_config(SimpleNamespace(**{**defaults, **inputs}))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_every_rate_is_gpt_neox_s(case: dict[str, Any]) -> None:
    """All styles, warm-ups and decay lengths give the recorded rates to 1e-12, also past the end of the decay."""
    schedule = schedule_of(case["inputs"])
    assert schedule.warmup_iter == case["warmup_iter"]
    assert schedule.end_iter == case["end_iter"]
    iterations = case.get("iterations") or range(len(case["lr"]))
    assert [schedule.lr(step) for step in iterations] == pytest.approx(case["lr"], rel=1e-12, abs=0)


@pytest.mark.parametrize("case", GOLDEN["restart"], ids=lambda case: case["name"])
def test_restart_keeps_takes_or_refuses_as_gpt_neox(case: dict[str, Any]) -> None:
    """The two switches choose the recorded schedule on resume; a difference without a switch is refused."""
    loaded = case["loaded_with"]
    saved = {key: value for key, value in case["state_dict"].items() if key != "num_iters"}
    switches = {
        "override": loaded.get("override_lr_scheduler", False),
        "use_checkpoint": loaded.get("use_checkpoint_lr_scheduler", False),
    }
    if "raises" in case:
        with pytest.raises((CheckpointError, ConfigError)):
            resumed_schedule(schedule_of(loaded), saved, **switches)
        return
    schedule = resumed_schedule(schedule_of(loaded), saved, **switches)
    first = case["state_dict"]["num_iters"]
    rates = [schedule.lr(first + offset) for offset in range(len(case["lr_after_load"]))]
    assert rates == pytest.approx(case["lr_after_load"], rel=1e-12, abs=0)


def test_a_changed_schedule_is_named_with_both_values() -> None:
    """The refusal says which number changed from what to what."""
    old = Schedule(1e-3, 1e-5, 10.0, 100, "cosine")
    new = Schedule(1e-3, 1e-5, 10.0, 200, "cosine")
    with pytest.raises(CheckpointError, match="end_iter 100 -> 200"):
        resumed_schedule(new, old.state(), override=False, use_checkpoint=False)
