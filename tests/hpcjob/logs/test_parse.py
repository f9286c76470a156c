"""Lines to events of training, against lines that the trainers printed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from hpcjob.logs.events import Checkpoint, Iteration, Validation, to_json
from hpcjob.logs.parse import parse

from .conftest import line


def test_golden_training_lines(golden: dict[str, Any]) -> None:
    """GPT-NeoX's training lines give the numbers they were printed from, also without loss, with NaN and with MFU."""
    for case in golden["iteration_line"]:
        inputs = case["inputs"]
        (event,) = parse(line(case["line"].rstrip("\n")))
        assert isinstance(event, Iteration)
        assert (event.iteration, event.train_iters) == (inputs["iteration"], inputs["train_iters"])
        assert event.lr == pytest.approx(inputs["learning_rate"], rel=1e-3)
        time_s = inputs["elapsed_for_interval_s"] / inputs["log_interval"]
        assert event.iteration_time_ms == pytest.approx(time_s * 1000, abs=0.05)
        assert event.samples_per_s == pytest.approx(inputs["train_batch_size"] / time_s, abs=6e-4)
        skipped = inputs["skipped_positions"]
        assert event.skipped == len(skipped)
        losses = [float(loss) for loss in inputs["losses"]]
        applied = [loss for position, loss in enumerate(losses) if position not in skipped]
        if not applied:
            assert event.loss is None
        elif any(math.isnan(loss) for loss in applied):
            assert event.loss is not None
            assert math.isnan(event.loss)
            assert not event.finite
        else:
            assert event.loss == pytest.approx(sum(applied) / len(applied), rel=1e-6)
            assert event.finite
        assert event.nan == sum(not math.isfinite(losses[position]) for position in skipped)
        assert event.loss_scale == (inputs["loss_scale"] if inputs["precision"] == "fp16" else None)
        assert (event.mfu_percent is None) == (inputs["peak_theoretical_tflops"] is None)


def test_golden_tflops(golden: dict[str, Any]) -> None:
    """The number before TFLOPS is what is in the line."""
    values = [parse(line(case["line"]))[0] for case in golden["iteration_line"]]
    assert [event.tflops for event in values if isinstance(event, Iteration)] == [
        8.5, 34.6, 3.6, 9.9, 9.9, 5.0, 19.9, 149.1,
    ]  # fmt: skip


@pytest.mark.parametrize(("unit", "tflops"), [("K", 1.5e-9), ("G", 1.5e-3), ("T", 1.5), ("P", 1500.0)])
def test_flops_units(golden: dict[str, Any], unit: str, tflops: float) -> None:
    """GPT-NeoX prints FLOPS with the unit that fits."""
    text = golden["iteration_line"][0]["line"].replace("8.5TFLOPS", f"1.5{unit}FLOPS")
    (event,) = parse(line(text))
    assert isinstance(event, Iteration)
    assert event.tflops == pytest.approx(tflops)


def test_golden_steps_lines(golden: dict[str, Any]) -> None:
    """The pipeline engine's line gives step, loss, time and rate."""
    for case in golden["steps_line"]:
        steps = case["steps_per_print"]
        (event,) = parse(line(case["lines"][0]))
        assert isinstance(event, Iteration)
        time_s = case["elapsed_ms_of_train_batch_timer"] / 1000 / steps
        assert event.shape == "deepspeed"
        assert event.iteration == steps
        assert event.loss == pytest.approx(case["losses"][steps - 1], abs=5e-5)
        assert event.iteration_time_ms == pytest.approx(time_s * 1000, abs=0.5)
        assert event.samples_per_s == pytest.approx(case["train_batch_size"] / time_s, abs=6e-4)


def test_golden_validation(golden: dict[str, Any]) -> None:
    """Of the evaluation block one line is an event, the rules around it are none."""
    for case in golden["validation"]:
        events = [event for text in case["text"].splitlines() for event in parse(line(text))]
        assert len(events) == 1
        (event,) = events
        assert isinstance(event, Validation)
        assert event.at == case["prefix"]
        assert event.loss == pytest.approx(case["lm_loss"], rel=1e-6)
        assert event.perplexity == pytest.approx(math.exp(case["lm_loss"]), rel=1e-6)
        assert event.iteration == (1000 if "1000" in case["prefix"] else None)


MEGATRON = (
    " [2026-01-01 12:00:00.123456] iteration      122/  250000 | consumed samples:       124928 | "
    "elapsed time per iteration (ms): 865.4 | throughput per GPU (TFLOP/s/GPU): 430.1 | learning rate: 1.500000E-04 | "
    "global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231 | num zeros: 0 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)


def test_megatron_line() -> None:
    """The Megatron family's line is the same table with other names."""
    (event,) = parse(line(MEGATRON))
    assert isinstance(event, Iteration)
    assert event.time == "2026-01-01 12:00:00.123456"
    assert (event.iteration, event.loss, event.lr, event.tflops) == (122, 2.50422, 1.5e-4, 430.1)
    assert (event.global_batch, event.grad_norm, event.iteration_time_ms) == (1024, 0.231, 865.4)


def test_tolerates_glue_and_prefixes(golden: dict[str, Any]) -> None:
    """Another process's text before or after, and launchers' prefixes, do not hide an iteration."""
    text = golden["iteration_line"][0]["line"].rstrip("\n")
    (plain,) = parse(line(text))
    for glued in (f"[1,0]<stdout>:{text}", f"node01: 0: {text}", f"bar 50%|##{text}", f"{text}Traceback: x | y: 1"):
        (event,) = parse(line(glued))
        assert isinstance(event, Iteration)
        assert isinstance(plain, Iteration)
        assert (event.iteration, event.loss, event.samples_per_s) == (100, plain.loss, plain.samples_per_s)


@pytest.mark.parametrize(
    "text",
    [
        "iteration 5/10 |",
        " samples/sec: 27.346 | iteration      100/  3200",
        "steps: many loss: 1",
        "the validation set is at data/x",
        "iteration " * 2000 + "|",
        "validation results at " + "x" * 5000,
    ],
)
def test_no_events(text: str) -> None:
    """Lines that were cut, or only have the words, are no events."""
    assert parse(line(text)) == []


@pytest.mark.parametrize(
    ("text", "action", "path", "iteration"),
    [
        ("saved checkpoint of iteration 500 to /data/チェック", "saved", "/data/チェック", 500),
        ("  successfully saved checkpoint at iteration    1000 to checkpoints", "saved", "checkpoints", 1000),
        ("[INFO] [x.py:33:commit] [Torch] Checkpoint global_step10 is ready now!", "saved", None, 10),
        ("Loading checkpoint and starting from iteration 10", "loaded", None, 10),
        (
            "  successfully loaded checkpoints/global_step10/mp_rank_00",
            "loaded",
            "checkpoints/global_step10/mp_rank_00",
            None,
        ),
    ],
)
def test_checkpoints(text: str, action: str, path: str | None, iteration: int | None) -> None:
    """Saving and loading are events."""
    (event,) = parse(line(text))
    assert isinstance(event, Checkpoint)
    assert (event.action, event.path, event.iteration) == (action, path, iteration)


def test_json_tells_absent_from_not_finite(golden: dict[str, Any]) -> None:
    """A loss of NaN is null; a field that the line lacks is left out."""
    lines = [case["line"] for case in golden["iteration_line"]]
    nan, none = (json.loads(to_json(parse(line(text))[0])) for text in (lines[4], lines[5]))
    assert nan["loss"] is None
    assert "loss" not in none
    assert nan["event"] == "iteration"
