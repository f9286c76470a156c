"""The lines of the log, to the letter those of GPT-NeoX. Pure text; imports no torch.

Sources: GPT-NeoX megatron/logging.py (training_log, human_readable_flops), megatron/training.py
(evaluate_and_print_results) and megatron/utils.py (report_memory, Timers), commit ea7aefd8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

_FLOPS_UNITS = ("", "KFLOPS", "MFLOPS", "GFLOPS", "TFLOPS", "PFLOPS", "EFLOPS", "ZFLOPS")
_NOTABLE_WAIT = 0.01
"""Of an iteration's time."""


def human_flops(flops: float) -> str:
    """Return a rate with its unit: 1.5e14 -> ``150.0TFLOPS``."""
    for unit in _FLOPS_UNITS:
        if abs(flops) < 1000.0:
            return f"{flops:3.1f}{unit}"
        flops /= 1000.0
    return f"{flops:.1f}YFLOPS"


def mean_fp32(losses: Iterable[float]) -> float | None:
    """Return the mean by a running fp32 sum, which is what GPT-NeoX logs; None of no losses."""
    total, count = np.float32(0.0), 0
    for loss in losses:
        total = np.float32(total + np.float32(loss))
        count += 1
    return float(total) / count if count else None


def iteration_line(
    *,
    iteration: int,
    train_iters: int,
    samples_per_s: float,
    iteration_time_ms: float,
    lr: float,
    flops_per_device: float,
    lm_loss: float | None,
    skipped: int = 0,
    nan: int = 0,
    loss_scale: float | None = None,
    mfu: float | None = None,
    hfu: float | None = None,
) -> str:
    """Return the training line of one log interval.

    Args:
        flops_per_device: floating-point operations per second and device.
        lm_loss: mean over the interval's iterations that were not skipped; None if all were.
        skipped: iterations of the interval whose optimizer step was skipped.
        nan: skipped iterations whose loss was not finite.
        loss_scale: for fp16 only.
        mfu: model FLOP utilisation, 0 to 1; with ``hfu``, hardware's, where the device's peak is known.
    """
    fields = [
        f" samples/sec: {samples_per_s:.3f}",
        f"iteration {iteration:8d}/{train_iters:8d}",
        f"elapsed time per iteration (ms): {iteration_time_ms:.1f}",
        f"learning rate: {lr:.3E}",
        f"approx flops per GPU: {human_flops(flops_per_device)}",
    ]
    if mfu is not None and hfu is not None:
        fields += [f"MFU: {mfu:.2%}", f"HFU: {hfu:.2%}"]
    if lm_loss is not None:
        fields.append(f"lm_loss: {lm_loss:.6E}")
    if loss_scale is not None:
        fields.append(f"loss scale: {loss_scale:.1f}")
    fields += [f"number of skipped iterations: {skipped:3d}", f"number of nan iterations: {nan:3d} |"]
    return " | ".join(fields)


def overflow_line(iteration: int, loss_scale: float) -> str:
    """Return the line of a step that fp16's range did not let be taken; the scale is the one after it."""
    return f"iteration {iteration}: the gradient overflowed, the step was skipped; loss scale: {loss_scale:.1f}"


def perplexity(loss: float) -> float:
    """Return exp(loss), infinity where it is beyond a float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def validation_block(prefix: str, lm_loss: float) -> str:
    """Return the three lines of a validation; ``prefix`` is ``iteration 1000`` or ``the end of training for ...``."""
    text = (
        f" validation results at {prefix} | lm_loss value: {lm_loss:.6E} "
        f"| lm_loss_ppl value: {perplexity(lm_loss):.6E} | "
    )
    rule = "-" * (len(text) + 1)
    return f"{rule}\n{text}\n{rule}"


def memory_line(iterations: int, megabytes: dict[str, float]) -> str:
    """Return the memory line that follows the first training line."""
    fields = " | ".join(f"{name}: {value:.1f}" for name, value in megabytes.items())
    return f"after {iterations} iterations memory (MB) | {fields}"


def data_wait_line(data_wait_ms: float, iteration_time_ms: float) -> str | None:
    """Return the line that says that training waits for batches; None where it hardly does."""
    share = data_wait_ms / iteration_time_ms if iteration_time_ms else 0.0
    if share < _NOTABLE_WAIT:
        return None
    return f"data wait (ms): {data_wait_ms:.1f} of {iteration_time_ms:.1f} an iteration ({share:.1%})"


def time_line(milliseconds: Mapping[str, float]) -> str:
    """Return the line of wall_clock_breakdown: time of each phase, an iteration."""
    fields = " | ".join(f"{name}: {value:.2f}" for name, value in milliseconds.items())
    return f"time (ms) | {fields}"
