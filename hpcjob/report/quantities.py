"""The quantities of a training run that are collected, drawn and exported: one row each."""

from __future__ import annotations

from typing import NamedTuple


class Quantity(NamedTuple):
    """One quantity.

    Attributes:
        name: field of `hpcjob.logs.events.Iteration`, and column of an export; its unit is in the name.
        label: heading of its chart.
        unit: of the drawn numbers, which are ``scale`` times the log's.
        tag: TensorBoard's tag, as neoxlite itself writes it where it does.
        tag_scale: from the log's number to TensorBoard's.
        watched: upward spikes of it are looked for.
    """

    name: str
    label: str
    unit: str
    tag: str
    tag_scale: float = 1.0
    watched: bool = False


QUANTITIES = (
    Quantity("loss", "Loss", "nats/token", "train/lm_loss", watched=True),
    Quantity("lr", "Learning rate", "", "train/learning_rate"),
    Quantity("tokens_per_s", "Throughput", "tokens/s", "runtime/tokens_per_sec"),
    Quantity("samples_per_s", "Throughput", "samples/s", "runtime/samples_per_sec"),
    Quantity("tflops", "Arithmetic per GPU", "TFLOPS", "runtime/flops_per_sec_per_gpu", 1e12),
    Quantity("memory_gib", "GPU memory", "GiB", "runtime/memory_gib"),
    Quantity("grad_norm", "Gradient norm", "", "train/grad_norm", watched=True),
    Quantity("iteration_time_ms", "Step time", "ms", "runtime/iteration_time", 1e-3, watched=True),
    Quantity("loss_scale", "Loss scale", "", "train/loss_scale"),
    Quantity("mfu_percent", "Model FLOPS utilisation", "%", "runtime/model_flops_utilization", 0.01),
)
"""In the order in which they are drawn."""
NAMES = tuple(quantity.name for quantity in QUANTITIES)
COLUMN = {name: column for column, name in enumerate(NAMES)}
EXTRA_COLUMNS = ("epoch", "time_s")
"""Columns that are kept beside the quantities: the epoch, and the time of the line in seconds since 1970."""
WIDTH = len(NAMES) + len(EXTRA_COLUMNS)
TIME_S = len(NAMES) + 1
