"""The steps since the last log line: their numbers stay on the device until a line needs them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from neoxlite.training.engine import Engine, Step
from neoxlite.training.evaluation import mean_over_replicas
from neoxlite.training.metrics import Interval
from neoxlite.training.stragglers import gather


class Window:
    """Collects steps, and the time they took without saves and validations."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._restart()

    def _restart(self) -> None:
        self.steps: list[Step] = []
        self._lrs: list[float] = []
        self._data_wait_s = 0.0
        self._paused_s = 0.0
        self._began = time.perf_counter()

    def add(self, step: Step, lr: float, data_wait_s: float) -> None:
        """Add a step, the rate after it, and the seconds that it waited for its data."""
        self.steps.append(step)
        self._lrs.append(lr)
        self._data_wait_s += data_wait_s

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of a block out."""
        began = time.perf_counter()
        with self._engine.phases.suspended():
            yield
        self._paused_s += time.perf_counter() - began

    def close(self, iteration: int) -> Interval:
        """Gather the window's numbers from the device and all ranks, and begin the next window; all ranks call this."""
        engine, count = self._engine, len(self.steps)
        measured = self.measure(iteration)
        phases_s = engine.phases.take()
        own_s = (engine.clock.take_s() * engine.accumulation + self._data_wait_s) / count
        with engine.phases.suspended():
            # Under stage 3 a forward pass waits for the other replicas.
            everyone_s = gather(own_s, engine.topology, engine.device) if engine.zero_stage < 3 else []
        interval = dataclasses.replace(measured, own_s=everyone_s, phases_s=phases_s)
        self._restart()
        return interval

    def measure(self, iteration: int) -> Interval:
        """Return the numbers so far, without what only `close` looks at; all ranks call this."""
        losses: Tensor = mean_over_replicas(torch.stack([step.loss for step in self.steps]), self._engine.topology)
        values = losses.tolist()
        norms = [float(step.grad_norm) for step in self.steps]
        skipped = [step.skipped for step in self.steps]
        seconds = time.perf_counter() - self._began - self._paused_s
        scales = [step.loss_scale for step in self.steps if step.loss_scale is not None]
        return Interval(iteration, seconds, values, self._lrs, norms, skipped, self._data_wait_s, loss_scales=scales)
