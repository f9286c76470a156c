"""Where the numbers of a run go: the log, metrics.jsonl, TensorBoard, Weights & Biases. Rank 0 only."""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from neoxlite.training import log_lines
from neoxlite.training.boards import Board
from neoxlite.training.hardware import Reading, hardware_line
from neoxlite.training.metrics_file import MetricsFile
from neoxlite.training.phases import DATA_WAIT, PHASES
from neoxlite.training.progress import ProgressLine

ATTENTION = "attention counted in full, as by GPT-NeoX, not halved for the causal mask"
"""What FLOPs, and with them TFLOP/s, MFU and HFU, are counted by."""


@dataclass(frozen=True)
class Interval:
    """What was measured over one log interval; the sequences have one entry an iteration."""

    iteration: int
    """The last iteration of the interval."""
    seconds: float
    losses: Sequence[float]
    lrs: Sequence[float]
    """Rate after each iteration, which is what GPT-NeoX logs."""
    grad_norms: Sequence[float]
    skipped: Sequence[bool]
    data_wait_s: float = 0.0
    """Time that this rank waited for batches, of ``seconds``."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Time of each phase on this rank, where wall_clock_breakdown asks for it."""
    own_s: Sequence[float] = ()
    """Of each rank, what it did alone (`neoxlite.training.stragglers`); empty where no two ranks do the same."""
    loss_scales: Sequence[float] = ()
    """After each iteration; fp16 only."""

    @property
    def iteration_s(self) -> float:
        """Seconds an iteration."""
        return self.seconds / len(self.losses)


@dataclass(frozen=True)
class Costs:
    """What an iteration costs, for rates."""

    samples: int
    tokens: int
    flops: float
    """Floating-point operations over all devices, recomputation included."""
    model_flops: float
    """The same without recomputation."""
    world_size: int
    peak_tflops: float | None


@dataclass(frozen=True)
class Rates:
    """Speeds of an interval."""

    iteration_s: float
    samples_per_s: float
    tokens_per_s: float
    hardware_flops: float
    """Floating-point operations a second and device, recomputation included."""
    model_flops: float
    """The same without recomputation."""
    mfu: float | None
    """Share of the device's peak, 0 to 1, by model FLOPs; None without a known peak."""
    hfu: float | None

    @classmethod
    def of(cls, costs: Costs, iteration_s: float) -> Rates:
        """Return the speeds at ``iteration_s`` seconds an iteration."""
        hardware, model = (flops / (iteration_s * costs.world_size) for flops in (costs.flops, costs.model_flops))
        peak = costs.peak_tflops * 1e12 if costs.peak_tflops else None
        return cls(
            iteration_s,
            costs.samples / iteration_s,
            costs.tokens / iteration_s,
            hardware,
            model,
            model / peak if peak else None,
            hardware / peak if peak else None,
        )


class Recorder:
    """Writes each interval, each validation and each event to all places at once."""

    def __init__(
        self,
        *,
        train_iters: int,
        costs: Costs,
        metrics: MetricsFile | None,
        boards: Sequence[Board],
        progress: ProgressLine,
    ):
        self._train_iters = train_iters
        self._costs = costs
        self._metrics = metrics
        self._boards = boards
        self._progress = progress
        self._memory_shown = False

    def close(self) -> None:
        """Close the files."""
        self._progress.clear()
        for board in self._boards:
            board.close()
        if self._metrics is not None:
            self._metrics.close()

    def print(self, text: str) -> None:
        """Print a line of the log."""
        self._progress.clear()
        print(text, flush=True)

    def event(self, event: str, iteration: int, /, **fields: Any) -> None:
        """Record something that is no interval in metrics.jsonl."""
        if self._metrics is not None:
            self._metrics.write({"event": event, "iteration": iteration, **fields})

    def start(self, iteration: int, checkpoint: str | None) -> None:
        """Record the begin of a run, or that it goes on from ``checkpoint``: entries of later iterations come again."""
        costs = self._costs
        self.event(
            "start",
            iteration,
            resumed=iteration > 0,
            checkpoint=checkpoint,
            world_size=costs.world_size,
            peak_tflops=costs.peak_tflops,
            flops=ATTENTION,
        )
        if costs.peak_tflops:
            peak = f"of a peak of {costs.peak_tflops:g} TFLOP/s a GPU"
            self.print(f"MFU counts the model's FLOPs, HFU recomputed ones too, {peak}; {ATTENTION}")

    def interval(self, measured: Interval, device: torch.device, gpu: Reading | None = None) -> None:
        """Record a log interval; ``gpu`` is what rank 0's GPU said of itself meanwhile."""
        rates = Rates.of(self._costs, measured.iteration_s)
        pairs = list(zip(measured.losses, measured.skipped, strict=True))
        lost = [loss for loss, skip in pairs if skip]
        lm_loss = log_lines.mean_fp32(loss for loss, skip in pairs if not skip)
        nan = sum(not math.isfinite(loss) for loss in lost)
        self.print(
            log_lines.iteration_line(
                iteration=measured.iteration,
                train_iters=self._train_iters,
                samples_per_s=rates.samples_per_s,
                iteration_time_ms=rates.iteration_s * 1000,
                lr=measured.lrs[-1],
                flops_per_device=rates.hardware_flops,
                lm_loss=lm_loss,
                skipped=len(lost),
                nan=nan,
                loss_scale=_last(measured.loss_scales),
                mfu=rates.mfu,
                hfu=rates.hfu,
            )
        )
        waited_ms = measured.data_wait_s * 1000 / len(measured.losses)
        if wait := log_lines.data_wait_line(waited_ms, rates.iteration_s * 1000):
            self.print(wait)
        if gpu is not None:
            self.print(hardware_line(gpu))
        self._report_not_finite(measured)
        memory = memory_megabytes(device)
        if not self._memory_shown:
            self._memory_shown = True
            self.print(log_lines.memory_line(measured.iteration, memory))
        phases_ms = _phases_ms(measured)
        if phases_ms:
            self.print(log_lines.time_line(phases_ms))
        if self._metrics is not None:
            entry = self._entry(measured, rates, lm_loss, len(lost), nan)
            self._metrics.write({**entry, "memory_mb": memory, "phases_ms": phases_ms or None, **_hardware(gpu)})
        self._to_boards(measured, rates, phases_ms, gpu)

    def validation(self, prefix: str, iteration: int, loss: float, *, name: str = "validation") -> None:
        """Record the loss of a validation (or test) run; ``prefix`` says when in GPT-NeoX's words."""
        self.print(log_lines.validation_block(prefix, loss))
        perplexity = log_lines.perplexity(loss)
        self.event(name, iteration, loss=loss, perplexity=perplexity, at=prefix)
        for board in self._boards:
            board.log({iteration: {f"{name}/lm_loss": loss, f"{name}/lm_loss_ppl": perplexity}})

    def _entry(self, measured: Interval, rates: Rates, lm_loss: float | None, skipped: int, nan: int) -> dict[str, Any]:
        """Return an entry of metrics.jsonl; units and meaning of its fields stand in docs/training.md."""
        return {
            "iteration": measured.iteration,
            "train_iters": self._train_iters,
            "loss": lm_loss,
            "lr": measured.lrs[-1],
            "grad_norm": measured.grad_norms[-1],
            "samples_per_s": rates.samples_per_s,
            "tokens_per_s": rates.tokens_per_s,
            "iteration_time_ms": rates.iteration_s * 1000,
            "data_wait_ms": measured.data_wait_s / len(measured.losses) * 1000,
            "tflops": rates.hardware_flops / 1e12,
            "model_tflops": rates.model_flops / 1e12,
            "mfu": rates.mfu,
            "hfu": rates.hfu,
            "loss_scale": _last(measured.loss_scales),
            "skipped": skipped,
            "nan": nan,
            "own_ms": _spread_ms(measured.own_s),
        }

    def _report_not_finite(self, measured: Interval) -> None:
        first = measured.iteration - len(measured.losses) + 1
        bad = []
        for offset, (loss, norm) in enumerate(zip(measured.losses, measured.grad_norms, strict=True)):
            what = [name for name, value in (("loss", loss), ("gradient norm", norm)) if not math.isfinite(value)]
            if what == ["gradient norm"] and measured.loss_scales and measured.skipped[offset]:
                self.print(log_lines.overflow_line(first + offset, measured.loss_scales[offset]))
            elif what:
                bad.append(f"{first + offset} ({', '.join(what)})")
        if bad:
            more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
            self.print(f"WARNING: not finite at iteration {', '.join(bad[:5])}{more}")

    def _to_boards(self, measured: Interval, rates: Rates, phases_ms: Mapping[str, float], gpu: Reading | None) -> None:
        if not self._boards:
            return
        first = measured.iteration - len(measured.losses) + 1
        scalars = {
            first + offset: {
                "train/learning_rate": measured.lrs[offset],
                "train/lm_loss": loss,
                "train/grad_norm": measured.grad_norms[offset],
            }
            for offset, loss in enumerate(measured.losses)
        }
        for offset, scale in enumerate(measured.loss_scales):
            scalars[first + offset]["train/loss_scale"] = scale
        last = scalars[measured.iteration]
        last |= {
            "runtime/samples_per_sec": rates.samples_per_s,
            "runtime/iteration_time": rates.iteration_s,
            "runtime/steps_per_sec": 1 / rates.iteration_s,
            "runtime/tokens_per_sec": rates.tokens_per_s,
            "runtime/flops_per_sec_per_gpu": rates.hardware_flops,
        }
        if rates.mfu is not None and rates.hfu is not None:
            last["runtime/model_flops_utilization"] = rates.mfu
            last["runtime/hardware_flops_utilization"] = rates.hfu
        if gpu is not None:
            last |= {"runtime/sm_clock_mhz": gpu.sm_clock_mhz, "runtime/power_w": gpu.power_w}
        last |= {f"timers/{name}": value / 1000 for name, value in phases_ms.items()}
        for board in self._boards:
            board.log(scalars)


def _last(values: Sequence[float]) -> float | None:
    return values[-1] if values else None


def _hardware(gpu: Reading | None) -> dict[str, Any]:
    return {} if gpu is None else {"hardware": gpu.as_dict()}


def _phases_ms(measured: Interval) -> dict[str, float]:
    """Return the time of each phase in milliseconds an iteration, the wait for data among them."""
    if not measured.phases_s:
        return {}
    seconds = {**measured.phases_s, DATA_WAIT: measured.data_wait_s}
    return {name: seconds.get(name, 0.0) / len(measured.losses) * 1000 for name in PHASES}


def _spread_ms(own_s: Sequence[float]) -> dict[str, float] | None:
    if not own_s:
        return None
    ordered = sorted(own_s)
    spread = {"min": ordered[0], "median": ordered[len(ordered) // 2], "max": ordered[-1]}
    return {**{name: value * 1000 for name, value in spread.items()}, "slowest_rank": list(own_s).index(ordered[-1])}


def memory_megabytes(device: torch.device) -> dict[str, float]:
    """Return the memory of this process in MB: the allocator's on a GPU, the resident set's peak on a CPU."""
    if device.type != "cuda":
        return {"max resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    megabyte = 1024 * 1024
    return {
        "allocated": torch.cuda.memory_allocated() / megabyte,
        "max allocated": torch.cuda.max_memory_allocated() / megabyte,
        "reserved": torch.cuda.memory_reserved() / megabyte,
        "max reserved": torch.cuda.max_memory_reserved() / megabyte,
    }
