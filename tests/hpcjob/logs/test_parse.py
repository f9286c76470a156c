"""Lines to events of training, against lines that the trainers printed."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from hpcjob.logs.events import (
    Checkpoint,
    EngineStep,
    Iteration,
    LossScale,
    Memory,
    Timers,
    Validation,
)
from hpcjob.logs.glue import unglue
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


@pytest.mark.parametrize(("unit", "tflops"), [("K", 16.4e-9), ("G", 0.0164), ("T", 16.4), ("P", 16400.0)])
def test_flops_units(golden: dict[str, Any], unit: str, tflops: float) -> None:
    """GPT-NeoX prints FLOPS with the unit that fits."""
    text = golden["iteration_line"][0]["line"].replace("8.5TFLOPS", f"16.4{unit}FLOPS")
    (event,) = parse(line(text))
    assert isinstance(event, Iteration)
    assert event.tflops == tflops  # to the last digit: exports write all of them


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
    nan, none = (json.loads(msgspec.json.encode(parse(line(text))[0])) for text in (lines[4], lines[5]))
    assert nan["loss"] is None
    assert "loss" not in none
    assert nan["event"] == "iteration"


TITAN = (
    "[titan] 2025-06-01 12:00:00,000 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.1234  \x1b[33mgrad_norm: 1.23"
    "45  \x1b[36mmemory: 60.12GiB(75.90%)  \x1b[34mtps: 6,667  \x1b[35mtflops: 386.12  mfu: 39.04%\x1b[39m"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            TITAN,
            {"iteration": 10, "loss": 7.1234, "grad_norm": 1.2345, "tokens_per_s": 6667, "tflops": 386.12,
             "mfu_percent": 39.04, "memory_gib": 60.12},
        ),
        (
            "iter 1631: loss 4.0863, time 561.94ms, mfu 25.00%",
            {"iteration": 1631, "loss": 4.0863, "iteration_time_ms": 561.94, "mfu_percent": 25.0},
        ),
        (
            "step    1/19560 | loss 10.955029 (+nanz)| norm 15.3384 (+nanz)| lr 8.57e-07 | 300.00 ms | 50.0% bf16 MFU "
            "| 1700000 tok/s",
            {"iteration": 1, "train_iters": 19560, "loss": 10.955029, "grad_norm": 15.3384, "lr": 8.57e-07,
             "iteration_time_ms": 300, "mfu_percent": 50.0, "tokens_per_s": 1_700_000},
        ),
        (
            "{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.1}",
            {"iteration": None, "loss": 2.5, "grad_norm": 1.25, "lr": 5e-05, "epoch": 0.1},
        ),
        (
            "  5%|▌         | 10/200 [00:10<03:10,  1.00it/s]{'loss': 2.5, 'learning_rate': 5e-05, 'epoch': 0.1}",
            {"iteration": 10, "train_iters": 200, "loss": 2.5, "lr": 5e-05},
        ),
        (
            "Epoch 0:  10%|█         | 100/1000 [00:10<01:30, 9.91it/s, v_num=0, train_loss=2.30]",
            {"iteration": 100, "train_iters": 1000, "loss": 2.30},
        ),
        (
            "step=100 loss=2.31 lr=1e-4 tokens_per_sec=12345",
            {"iteration": 100, "loss": 2.31, "lr": 1e-4, "tokens_per_s": 12345},
        ),
        ("INFO Step 7 of 100, training loss: nan", {"iteration": 7, "train_iters": 100}),
        ('{"step": 5, "loss": 1.5, "lr": 0.001}', {"iteration": 5, "loss": 1.5, "lr": 0.001}),
        (
            " iteration      122/  250000 | consumed samples:       124928 | elapsed time per iteration (ms): 86545.2 "
            "| learning rate: 9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | "
            "grad norm: 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            {"iteration": 122, "loss": 2.50422, "grad_norm": 0.231, "lr": 9.15e-06, "global_batch": 1024},
        ),
        (
            " iteration     5426/  250000 | consumed samples:        43408 | consumed tokens:     88899584 | elapsed "
            "time per iteration (ms): 4247.9 | learning rate: 2.999E-04 | global batch size:     8 | loss scale: 1.0 | "
            "grad norm: nan | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 "
            "| samples per second: 1.883 | TFLOPs: 78.36 |",
            {"iteration": 5426, "loss": None, "samples_per_s": 1.883, "tflops": 78.36},
        ),
    ],
)  # fmt: skip
def test_other_trainers(text: str, expected: dict[str, Any]) -> None:
    """Each trainer's line gives its step, its loss and what else it tells, with its own prefixes and colours."""
    (event,) = parse(line(text))
    assert isinstance(event, Iteration)
    assert {name: getattr(event, name) for name in expected} == pytest.approx(expected)


def test_all_losses_not_finite() -> None:
    """Megatron leaves the loss out when none was finite: the gradient norm says so."""
    text = " iteration 5/ 10 | elapsed time per iteration (ms): 1.0 | learning rate: 1E-4 | grad norm: nan |"
    (event,) = parse(line(text))
    assert isinstance(event, Iteration)
    assert not event.finite


def test_validation_of_other_trainers() -> None:
    """A loss on held-out data is no training loss, also when both stand on a line."""
    train, held = parse(line("step 250: train loss 4.1, val loss 4.2"))
    assert isinstance(train, Iteration)
    assert isinstance(held, Validation)
    assert (train.loss, held.loss, held.iteration) == (4.1, 4.2, 250)
    (held,) = parse(line("{'eval_loss': 1.75, 'eval_runtime': 10.0, 'epoch': 1.0}"))
    assert isinstance(held, Validation)
    assert (held.loss, held.iteration) == (1.75, None)


@pytest.mark.parametrize(
    "text",
    ["loss scale is 4096 at step 5", "the loss of step size", "lossless step 5", "step 5: no loss yet", "loss: 2.5"],
)
def test_no_iterations(text: str) -> None:
    """A loss without a step, or words like them, are no iteration."""
    assert not any(isinstance(event, Iteration) for event in parse(line(text)))


def test_golden_timers(golden: dict[str, Any]) -> None:
    """Timers of GPT-NeoX, and of Megatron-LM which prints one a line."""
    for case in golden["timers_line"]:
        (event,) = parse(line(case["text"].rstrip("\n")))
        assert isinstance(event, Timers)
        expected = {name: time * 1000 / case["normalizer"] for name, time in case["timers_s"].items()}
        assert event.ms == pytest.approx(expected, abs=0.006)
    (event,) = parse(line("    forward-backward ...............................: (1234.50, 1240.25)"))
    assert isinstance(event, Timers)
    assert event.ms == {"forward-backward": 1240.25}


def test_engine_memory_and_loss_scale() -> None:
    """What DeepSpeed's engine, its memory report and its loss scaler print."""
    (step,) = parse(line("[Rank 0] step=10, skipped=2, lr=[0.0006, 0.0003], mom=[[0.9, 0.95], [0.9, 0.95]]"))
    assert isinstance(step, EngineStep)
    assert (step.step, step.skipped, step.lr) == (10, 2, [0.0006, 0.0003])
    memory, step = parse(
        line(
            "epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=12.5, CurrSamplesPerSec=13.5, "
            "MemAllocated=1.5GB, MaxMemAllocated=2.5GB"
        )
    )
    assert isinstance(memory, Memory)
    assert isinstance(step, EngineStep)
    assert (step.step, step.samples_per_s, memory.allocated_gib, memory.max_allocated_gib) == (10, 13.5, 1.5, 2.5)
    (memory,) = parse(line("MA 15.0 GB         Max_MA 16.5 GB         CA 17.0 GB         Max_CA 18 GB"))
    assert isinstance(memory, Memory)
    assert (memory.allocated_gib, memory.max_allocated_gib, memory.max_reserved_gib) == (15.0, 16.5, 18.0)
    (memory,) = parse(
        line(
            "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1024.0 | max allocated: 2048.0 | reserved: 3072.0 |"
        )
    )
    assert isinstance(memory, Memory)
    assert (memory.allocated_gib, memory.max_allocated_gib, memory.reserved_gib) == (1.0, 2.0, 3.0)
    (scale,) = parse(line("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"))
    assert isinstance(scale, LossScale)
    assert (scale.overflow, scale.tried, scale.scale) == (True, 65536, 32768)


@pytest.mark.parametrize(
    ("written", "rate"), [("500K", 500e3), ("1.25M", 1.25e6), ("62.5k", 62_500.0), ("6,667", 6667.0), ("640", 640.0)]
)
def test_rates_that_are_shortened(written: str, rate: float) -> None:
    """Nanotron writes 500K for five hundred thousand tokens a second."""
    (event,) = parse(line(f"iteration: 3 / 100 | tokens_per_sec: {written} | lm_loss: 3.125 | lr: 0.0003"))
    assert isinstance(event, Iteration)
    assert event.tokens_per_s == rate


def test_the_last_entry_of_the_hugging_face_trainer() -> None:
    """Its loss is the mean over the run: no row of the table."""
    text = "{'train_runtime': 12.5, 'train_samples_per_second': 3.2, 'train_loss': 2.375, 'epoch': 0.2}"
    assert not [event for event in parse(line(text)) if isinstance(event, Iteration)]


@pytest.mark.parametrize("joint", ["", " "])
def test_entries_of_one_line(joint: str) -> None:
    """The Trainer's entries that two processes wrote at once are two rows; a dictionary in another is none."""
    first = "{'loss': 1.26, 'learning_rate': 5.2e-06, 'epoch': 0.02}"
    second = "{'eval_loss': 1.1, 'eval_runtime': 1.0, 'epoch': 0.02}"
    third = "{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 6.3e-06, 'epoch': 0.03}"
    parts = unglue(joint.join((first, second, third)).encode())
    assert [at for at, _ in parts] == [0, len(first + joint), len(first + joint + second + joint)]
    events = [event for _, part in parts for event in parse(line(part.decode()))]
    losses = [event.loss for event in events if isinstance(event, Iteration | Validation)]
    assert losses == [1.26, 1.1, 1.2]
    nested = '{"step": 1, "loss": 2.5, "lr": {"a": 1e-4}, "more": [{"b": 1}, {"c": 2}]}'
    assert unglue(nested.encode()) == [(0, nested.encode())]
