"""What the ranks of benchmarks/gpu/multi.py do with the real trainer: train, load checkpoints of other layouts."""

from __future__ import annotations

import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from multi_profile import Profile
from torch import nn

from neoxlite.config import load_config
from neoxlite.parallel.ranks import Ranks

WARM_STEPS = 3
"""Steps before peak memory is counted."""


def machine(ranks: Ranks, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Say what the machine is, and what bf16 matrix products of 8192 x 8192 it sustains for two seconds (TFLOP/s)."""
    import deepspeed

    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "deepspeed": deepspeed.__version__,
        "cpus": os.cpu_count(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if not torch.cuda.is_available():
        return {**found, "gpu": None, "gpus": 0}
    torch.zeros(1, device="cuda")  # fails in a process that was forked too late
    found |= {
        "gpu": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
        "cuda": torch.version.cuda,
        "peers": all(
            torch.cuda.can_device_access_peer(one, other)
            for one, other in itertools.permutations(range(torch.cuda.device_count()), 2)
        ),
        "matmul_tflops": _matmul_tflops(),
    }
    return found


def _matmul_tflops(size: int = 8192, seconds: float = 2.0) -> float:
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    a @ b
    torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(10):
            a @ b
        torch.cuda.synchronize()
        count += 10
    return round(2 * size**3 * count / (time.perf_counter() - start) / 1e12, 1)


class Observed:
    """Watches an engine's steps: memory after the first ones, and a profile of the last ``profiled``."""

    def __init__(self, steps: int, profiled: int):
        self._steps, self._taken, self._profiled = steps, 0, profiled
        self._profile = Profile() if profiled else None
        self.found: dict[str, Any] = {}

    def wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a ``train_step`` that is watched."""

        def watched(engine: Any, batches: Any, iteration: int) -> Any:
            self._taken += 1
            if self._taken == WARM_STEPS + 1 and torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            last = self._steps - self._taken
            if self._profile is None:
                done = step(engine, batches, iteration)
                if last == 0:
                    self._memory()
                return done
            if last == self._profiled - 1:
                self._memory()
                self._profile.start()
            if last >= self._profiled:
                return step(engine, batches, iteration)
            done = self._profile.marked(lambda: step(engine, batches, iteration))
            if last == 0:
                self.found |= self._profile.stop()
            return done

        return watched

    def _memory(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            self.found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
            self.found["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
            self.found["after_step_gib"] = torch.cuda.memory_allocated() / 2**30


def train(ranks: Ranks, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run the real trainer.

    Args:
        arguments: ``config``, a GPT-NeoX YAML; ``profiled``: how many of the last steps are; ``saved_at``: the one
            iteration whose checkpoint is wanted; ``rough``: whether any weights will do.
    """
    from neoxlite.training import run
    from neoxlite.training.engine import Engine
    from neoxlite.training.environment import RunFiles
    from neoxlite.training.pipeline_engine import PipelineEngine

    cfg = load_config(arguments["config"], world_size=ranks.world_size)
    kind = Engine if cfg.pipe_parallel_size <= 1 else PipelineEngine
    observed = Observed(cfg.train_iters, arguments.get("profiled", 0))
    kind.train_step = observed.wrap(kind.train_step)  # type: ignore[method-assign] # this process does nothing else
    if "saved_at" in arguments:
        _save_only(arguments["saved_at"])
    if arguments.get("rough"):
        _begin_roughly(ranks)
    metrics = folder / "metrics.jsonl"
    if ranks.rank == 0:
        metrics.unlink(missing_ok=True)
    outcome = run(cfg, ranks=ranks, files=RunFiles(metrics=metrics))
    tokens = cfg.train_batch_size * cfg.seq_length
    found = {"outcome": outcome.outcome, "tokens": tokens, **observed.found}
    if ranks.rank == 0:
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        rows = [row for row in rows if "iteration_time_ms" in row]
        found["losses"] = [row["loss"] for row in rows]
        found["grad_norms"] = [row["grad_norm"] for row in rows]
        found["ms"] = [row["iteration_time_ms"] for row in rows]
        found["tokens_per_s"] = _median([row.get("tokens_per_s") for row in rows][1 : -1 if len(rows) > 3 else None])
    return found


def _save_only(iteration: int) -> None:
    """Leave out the checkpoint at the end of training, which nobody loads here: gigabytes for each layout."""
    from neoxlite.training.saving import Saves

    real = Saves.save

    def save(self: Any, contents: Any) -> None:
        if contents.training["iteration"] == iteration:
            real(self, contents)

    Saves.save = save  # type: ignore[method-assign]


def _begin_roughly(ranks: Ranks) -> None:
    """Have models made on their device, of repeated random numbers: billions of them take longer than a run."""
    import neoxlite.training.create as create
    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.pipeline import PipelineStage
    from neoxlite.parallel.distributed import choose_device

    device = choose_device(ranks.local_rank)

    def there(make: Callable[..., None]) -> Callable[..., None]:
        def make_there(self: Any, *arguments: Any) -> None:
            with torch.device(device):
                make(self, *arguments)

        return make_there

    GPTModel.__init__ = there(GPTModel.__init__)  # type: ignore[method-assign]
    PipelineStage.__init__ = there(PipelineStage.__init__)  # type: ignore[method-assign]
    create.initialise = rough_weights


@torch.no_grad()
def rough_weights(model: nn.Module, *_rest: Any) -> None:
    """Fill matrices with one block of random numbers again and again, norms with 1, biases with 0."""
    device = next(model.parameters()).device
    block = torch.randn(2**20, device=device, generator=torch.Generator(device).manual_seed(1)) * 0.02
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            parameter.fill_(float(name.endswith("weight")))
            continue
        flat = parameter.view(-1)
        whole = flat.numel() // block.numel() * block.numel()
        flat[:whole].view(-1, block.numel()).copy_(block)
        flat[whole:].copy_(block[: flat.numel() - whole])


def _median(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def reload(ranks: Ranks, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Load checkpoints of other layouts into one engine, each followed by training on the batches behind it.

    Args:
        arguments: ``config`` of this layout; ``checkpoints``: name -> folder of a step; ``iterations`` to train.
    """
    from neoxlite.optim.schedule import Schedule
    from neoxlite.parallel.distributed import choose_device, join_world, leave_world, prepare
    from neoxlite.parallel.topology import Grid, create_topology
    from neoxlite.training.environment import RunFiles
    from neoxlite.training.evaluation import mean_over_replicas
    from neoxlite.training.outcome import Progress
    from neoxlite.training.resume import resume
    from neoxlite.training.trainer import Trainer

    found = {name: folder for name, folder in arguments["checkpoints"].items() if Path(folder).is_dir()}
    first = next(iter(found.values()))
    overrides = {"load": str(Path(first).parent), "save": None, "iteration": int(Path(first).name.split("step")[1])}
    cfg = load_config(arguments["config"], overrides=overrides, world_size=ranks.world_size)
    device = choose_device(ranks.local_rank)
    prepare(device)
    join_world(ranks, device)
    grid = Grid(max(1, cfg.pipe_parallel_size), cfg.data_parallel_size, cfg.model_parallel_size)
    topology = create_topology(grid, ranks.rank)
    trainer = Trainer(cfg, topology, device, RunFiles(), Progress())
    engine = trainer.engine
    count = arguments["iterations"]
    with trainer.data.train_batches() as batches:
        per_step = [list(itertools.islice(batches, cfg.gradient_accumulation_steps)) for _ in range(count)]
    losses: dict[str, list[float]] = {}
    for name, checkpoint in found.items():
        start = Schedule.from_config(trainer.cfg)
        resumed = resume(Path(checkpoint), trainer.cfg, engine, start, trainer.padded_vocab_size, print)
        position, losses[name] = resumed.position, []
        for step_batches in per_step:
            engine.set_lr(resumed.schedule.lr(position.steps_taken))
            step = engine.train_step(iter(step_batches), position.iteration + 1)
            position.advance(cfg.train_batch_size, skipped=step.skipped)
            losses[name].append(mean_over_replicas(step.loss, topology).item())
    if ranks.world_size > 1:
        dist.barrier()
    leave_world()
    return {"losses": losses}
