"""Where the numbers of a run go: the log, metrics.jsonl, TensorBoard. Rank 0 only."""

from __future__ import annotations

import datetime
import json
import math
import resource
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from neoxlite.training import log_lines
from neoxlite.training.progress import ProgressLine


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


class Recorder:
    """Writes each interval and each validation to all places at once."""

    def __init__(
        self,
        *,
        train_iters: int,
        costs: Costs,
        metrics_file: Path | None,
        tensorboard_dir: str | None,
        progress: ProgressLine,
    ):
        self._train_iters = train_iters
        self._costs = costs
        self._progress = progress
        self._memory_shown = False
        self._file: IO[str] | None = None
        if metrics_file is not None:
            metrics_file.parent.mkdir(parents=True, exist_ok=True)
            self._file = metrics_file.open("a", encoding="utf-8")
        self._board: Any = _summary_writer(tensorboard_dir) if tensorboard_dir else None

    def close(self) -> None:
        """Close the files."""
        self._progress.clear()
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()

    def print(self, text: str) -> None:
        """Print a line of the log."""
        self._progress.clear()
        print(text, flush=True)

    def interval(self, measured: Interval, device: torch.device) -> None:
        """Record a log interval."""
        count = len(measured.losses)
        iteration_s = measured.seconds / count
        costs = self._costs
        flops_per_device = costs.flops / (iteration_s * costs.world_size)
        applied = [loss for loss, skip in zip(measured.losses, measured.skipped, strict=True) if not skip]
        lost = [loss for loss, skip in zip(measured.losses, measured.skipped, strict=True) if skip]
        lm_loss = log_lines.mean_fp32(applied)
        utilisation = {}
        if costs.peak_tflops:
            hfu = flops_per_device / 1e12 / costs.peak_tflops
            utilisation = {"mfu": hfu * costs.model_flops / costs.flops, "hfu": hfu}
        self.print(
            log_lines.iteration_line(
                iteration=measured.iteration,
                train_iters=self._train_iters,
                samples_per_s=costs.samples / iteration_s,
                iteration_time_ms=iteration_s * 1000,
                lr=measured.lrs[-1],
                flops_per_device=flops_per_device,
                lm_loss=lm_loss,
                skipped=len(lost),
                nan=sum(not math.isfinite(loss) for loss in lost),
                **utilisation,
            )
        )
        self._report_not_finite(measured)
        if not self._memory_shown:
            self._memory_shown = True
            self.print(log_lines.memory_line(measured.iteration, memory_megabytes(device)))
        self._write(
            {
                "iteration": measured.iteration,
                "train_iters": self._train_iters,
                "loss": lm_loss,
                "lr": measured.lrs[-1],
                "grad_norm": measured.grad_norms[-1],
                "samples_per_s": costs.samples / iteration_s,
                "tokens_per_s": costs.tokens / iteration_s,
                "iteration_time_ms": iteration_s * 1000,
                "tflops": flops_per_device / 1e12,
                "loss_scale": None,
                "skipped": len(lost),
            }
        )
        self._to_board(measured, iteration_s, flops_per_device, utilisation)

    def validation(self, prefix: str, iteration: int, loss: float, *, name: str = "validation") -> None:
        """Record the loss of a validation (or test) run; ``prefix`` says when in GPT-NeoX's words."""
        self.print(log_lines.validation_block(prefix, loss))
        perplexity = log_lines.perplexity(loss)
        self._write({"event": name, "iteration": iteration, "loss": loss, "perplexity": perplexity, "at": prefix})
        if self._board is not None:
            self._board.add_scalar(f"{name}/lm_loss", loss, iteration)
            self._board.add_scalar(f"{name}/lm_loss_ppl", perplexity, iteration)
            self._board.flush()

    def _report_not_finite(self, measured: Interval) -> None:
        first = measured.iteration - len(measured.losses) + 1
        bad = []
        for offset, (loss, norm) in enumerate(zip(measured.losses, measured.grad_norms, strict=True)):
            what = [name for name, value in (("loss", loss), ("gradient norm", norm)) if not math.isfinite(value)]
            if what:
                bad.append(f"{first + offset} ({', '.join(what)})")
        if bad:
            more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
            self.print(f"WARNING: not finite at iteration {', '.join(bad[:5])}{more}")

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is None:
            return
        entry["time"] = datetime.datetime.now().astimezone().isoformat()
        # JSON has no word for NaN and infinity.
        clean = {key: _json_number(value) for key, value in entry.items()}
        self._file.write(json.dumps(clean, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()

    def _to_board(
        self, measured: Interval, iteration_s: float, flops_per_device: float, utilisation: dict[str, float]
    ) -> None:
        if self._board is None:
            return
        add = self._board.add_scalar
        first = measured.iteration - len(measured.losses) + 1
        for offset, loss in enumerate(measured.losses):
            add("train/learning_rate", measured.lrs[offset], first + offset)
            add("train/lm_loss", loss, first + offset)
            add("train/grad_norm", measured.grad_norms[offset], first + offset)
        runtime = {
            "samples_per_sec": self._costs.samples / iteration_s,
            "iteration_time": iteration_s,
            "steps_per_sec": 1 / iteration_s,
            "tokens_per_sec": self._costs.tokens / iteration_s,
            "flops_per_sec_per_gpu": flops_per_device,
        }
        if utilisation:
            runtime["model_flops_utilization"] = utilisation["mfu"]
            runtime["hardware_flops_utilization"] = utilisation["hfu"]
        for key, value in runtime.items():
            add(f"runtime/{key}", value, measured.iteration)
        self._board.flush()


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


def _json_number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _summary_writer(folder: str) -> Any:
    with warnings.catch_warnings():
        # tensorboard's protobuf and distutils notices are not the user's to act on.
        warnings.simplefilter("ignore")
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(log_dir=folder)
