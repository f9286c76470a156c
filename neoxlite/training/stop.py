"""How a run is asked to end: a stop file of rank 0, SIGTERM or Ctrl-C to any rank, a failed save behind training.

All ranks must end at the same iteration. The request travels in an all-reduce of one integer, posted when an iteration
begins and read when its work has been issued, so that on a GPU no rank waits for it. An evaluation does the same for
each of its batches.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

NONE, REQUEST, WALLTIME, SAVE_FAILED = 0, 1, 2, 3


class StopSignal:
    """Collects requests on this rank and agrees on them with the others."""

    def __init__(
        self,
        stop_file: Path | None,
        signalled: Callable[[], bool],
        rank: int,
        world_size: int,
        device: torch.device,
        *,
        save_failed: Callable[[], bool] = lambda: False,
    ):
        self._signalled = signalled
        self._save_failed = save_failed
        self._file = stop_file if rank == 0 else None
        self._world_size = world_size
        self._on_device = torch.zeros((), dtype=torch.int32, device=device)
        self._on_host = torch.zeros((), dtype=torch.int32, pin_memory=device.type == "cuda")
        self._copied = torch.Event(device) if device.type == "cuda" else None

    def _look(self) -> int:
        if self._save_failed():
            return SAVE_FAILED
        received = REQUEST if self._signalled() else NONE
        if self._file is not None:
            try:
                text = self._file.read_text(encoding="utf-8", errors="replace")
            except OSError:
                return received
            return WALLTIME if text.strip() == "walltime" else REQUEST
        return received

    def post(self) -> None:
        """Start agreeing on the requests seen so far; all ranks call this once an iteration."""
        self._on_device.fill_(self._look())
        if self._world_size > 1:
            dist.all_reduce(self._on_device, op=dist.ReduceOp.MAX)
        self._on_host.copy_(self._on_device, non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def read(self) -> int:
        """Return what the ranks agreed on at the last `post`: NONE, REQUEST, WALLTIME or SAVE_FAILED."""
        if self._copied is not None:
            self._copied.synchronize()
        return int(self._on_host)
