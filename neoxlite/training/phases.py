"""Time of an iteration's phases, measured only where wall_clock_breakdown asks for it.

Work on a GPU is issued ahead of its end, so that a phase has a time of its own only if the device is waited for at both
its ends. That costs speed and all overlap, which is why nothing here waits unless it is asked to. Phases nest, and each
instant counts for the innermost one: a collective in the backward pass is communication, not backward.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION = "forward", "backward", "optimizer", "communication"
DATA_WAIT = "batch generator"
"""GPT-NeoX's word for it."""
PHASES = (FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, DATA_WAIT)

# Point-to-point calls are no part of the list: a rank that waits in a send would keep its peer from sending.
_COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
)
_NOTHING = contextlib.nullcontext()


class Phases:
    """Adds up the time of phases: ``with phases(FORWARD): ...``; without ``enabled`` that does nothing."""

    def __init__(self, device: torch.device | None = None, *, enabled: bool = False):
        self.enabled = enabled
        self._synchronize: Callable[[], None] = torch.cuda.synchronize if _is_cuda(device) else lambda: None
        self._seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0
        self._suspended = False

    def __call__(self, name: str) -> AbstractContextManager[None]:
        """Count the time of a block, without that of the phases inside it, for the phase ``name``."""
        return self._phase(name) if self.enabled and not self._suspended else _NOTHING

    def take(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call."""
        taken, self._seconds = dict(self._seconds), defaultdict(float)
        return taken

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Leave a block out, such as a validation."""
        self._suspended = True
        try:
            yield
        finally:
            self._suspended = False

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def _charge(self) -> None:
        """Give the time since the last change of phase to the innermost open one."""
        self._synchronize()
        now = time.perf_counter()
        if self._open:
            self._seconds[self._open[-1]] += now - self._since
        self._since = now


def _is_cuda(device: torch.device | None) -> bool:
    return device is not None and device.type == "cuda"


@contextlib.contextmanager
def collectives_timed(phases: Phases) -> Iterator[None]:
    """Count the collectives inside the block, ours and DeepSpeed's, as communication; each is then waited for."""
    if not phases.enabled:
        yield
        return
    with contextlib.ExitStack() as stack:
        for name in _COLLECTIVES:
            stack.enter_context(_replaced(dist, name, phases))
        from deepspeed.comm import comm

        # DeepSpeed looked these two up when it was set up.
        for name in ("all_gather_function", "reduce_scatter_function"):
            if getattr(comm.cdb, name, None) is not None:
                stack.enter_context(_replaced(comm.cdb, name, phases))
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, phases: Phases) -> Iterator[None]:
    real = getattr(owner, name)

    def timed(*args: Any, **keywords: Any) -> Any:
        with phases(COMMUNICATION):
            work = real(*args, **keywords)
            if work is not None:
                work.wait()
        return work

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, real)
