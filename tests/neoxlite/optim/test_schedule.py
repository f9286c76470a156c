"""The learning-rate schedule against rates recorded from GPT-NeoX."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neoxlite.errors import CheckpointError, ConfigError
from neoxlite.optim.schedule import STYLES, Schedule, end_keys, resumed_schedule

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
    """The refusal names the key that was changed, which number changed from what to what, and both ways on."""
    keys = {"lr": 1e-3, "min_lr": 1e-5, "warmup": 0.0625, "lr_decay_style": "cosine", "lr_decay_iters": None}
    longer = SimpleNamespace(**keys, lr_decay_fraction=None, train_iters=160)
    old = Schedule(1e-3, 1e-5, 6.25, 100, "cosine")
    with pytest.raises(CheckpointError) as caught:
        resumed_schedule(
            Schedule.from_config(longer), old.state(), override=False, use_checkpoint=False, end=end_keys(longer)
        )
    assert caught.value.message == (
        "train_iters: 160: the learning-rate schedule is not the checkpoint's: end_iter 100 -> 160, "
        "warmup_iter 6.25 -> 10.0"
    )
    assert "override_lr_scheduler: true to continue on the new one" in (caught.value.hint or "")
    assert "use_checkpoint_lr_scheduler: true to keep" in (caught.value.hint or "")
    other = dataclasses.replace(old, start_lr=2e-3)
    with pytest.raises(CheckpointError, match=r"^the learning-rate schedule is not the checkpoint's: start_lr 0.001 "):
        resumed_schedule(other, old.state(), override=False, use_checkpoint=False)
