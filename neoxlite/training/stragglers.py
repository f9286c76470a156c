"""Ranks that hold the others up, told apart by what a rank does alone.

All ranks take the same time for an iteration, since they wait for the slowest in its collectives. So each measures
its own part: the wait for data, and the forward pass of the first micro-batch, taken once for each micro-batch.
Compared are ranks of one pipeline stage, which do the same work. What cannot be told apart: ranks of one
tensor-parallel group, and replicas under ZeRO stage 3, whose forward passes wait for each other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import torch
import torch.distributed as dist

from neoxlite.parallel.topology import Topology

SLOWER_BY = 1.1
"""Times the median of the other ranks: what healthy nodes of one kind stay within."""
OF_AN_ITERATION = 0.02
"""What the difference must come to: below it nothing would be gained."""
OF_THE_WORST = 0.5
"""What the difference must come to beside the slowest rank's: all wait for that one, whatever the lesser ones do."""
INTERVALS = 3
"""Log intervals in a row: a hiccup is no slow node."""


class ForwardClock:
    """Measures blocks without waiting for the device: by events on a GPU, whose times are read when they are over."""

    def __init__(self, device: torch.device):
        self._on_gpu = device.type == "cuda"
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        if self._on_gpu:
            pair = (_timed_event(), _timed_event())
            pair[0].record()
            self._pairs.append(pair)
        else:
            self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on_gpu:
            self._pairs[-1][1].record()
        else:
            self._seconds += time.perf_counter() - self._began

    def take_s(self) -> float:
        """Return the seconds of the blocks since the last call, waiting for the last one's end."""
        if self._pairs:
            self._pairs[-1][1].synchronize()
        of_pairs_ms: float = sum(start.elapsed_time(end) for start, end in self._pairs)
        seconds = self._seconds + of_pairs_ms / 1000
        self._seconds, self._pairs = 0.0, []
        return seconds


def _timed_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call] # torch has no types here


def gather(own_s: float, topology: Topology, device: torch.device) -> list[float]:
    """Return every rank's ``own_s``, on every rank; empty where no two ranks do the same work."""
    if topology.data_size == 1:
        return []
    world_size = topology.grid.world_size
    mine = torch.tensor([own_s], dtype=torch.float32, device=device)
    everyone = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(everyone, mine)
    seconds: list[float] = torch.cat(everyone).tolist()
    return seconds


@dataclass(frozen=True)
class Straggler:
    """A rank that is slower than the others that do the same."""

    rank: int
    own_s: float
    """A log interval's, an iteration."""
    others_s: float
    """Median of the other ranks of its stage."""

    @property
    def lost_s(self) -> float:
        """Seconds that all ranks wait for it, if it is the slowest."""
        return self.own_s - self.others_s


class Stragglers:
    """Follows the ranks over log intervals, and names each one once as long as it stays slow."""

    def __init__(self, topology: Topology):
        grid = topology.grid
        stage_size = grid.data * grid.tensor
        self._stages = [range(first, first + stage_size) for first in range(0, grid.world_size, stage_size)]
        self._rows: dict[int, int] = {}

    def add(self, own_s: Sequence[float], iteration_s: float) -> tuple[list[Straggler], list[int]]:
        """Return the ranks to name now, and those that were named and keep up again.

        Args:
            own_s: of each rank, seconds an iteration.
            iteration_s: seconds that an iteration took.
        """
        slow = {found.rank: found for found in self._slow(own_s, iteration_s)}
        recovered = [rank for rank, rows in self._rows.items() if rows >= INTERVALS and rank not in slow]
        self._rows = {rank: self._rows.get(rank, 0) + 1 for rank in slow}
        return [found for rank, found in slow.items() if self._rows[rank] == INTERVALS], recovered

    @property
    def named(self) -> list[int]:
        """The ranks that are slow for `INTERVALS` or more."""
        return sorted(rank for rank, rows in self._rows.items() if rows >= INTERVALS)

    def _slow(self, own_s: Sequence[float], iteration_s: float) -> list[Straggler]:
        found = []
        for stage in self._stages if own_s else ():
            for rank in stage:
                others_s = statistics.median(own_s[other] for other in stage if other != rank)
                if own_s[rank] > SLOWER_BY * others_s and own_s[rank] - others_s > OF_AN_ITERATION * iteration_s:
                    found.append(Straggler(rank, own_s[rank], others_s))
        worst_s = max((rank.lost_s for rank in found), default=0.0)
        return [rank for rank in found if rank.lost_s >= OF_THE_WORST * worst_s]


def straggler_line(found: Straggler, host: str) -> str:
    """Return the warning that names a rank and its host."""
    return (
        f"WARNING: rank {found.rank} on {host} is slow: {found.own_s * 1000:.1f} ms of its own an iteration, the "
        f"others {found.others_s * 1000:.1f} ms (median), {INTERVALS} log intervals in a row; all ranks wait for it: "
        "look at that node (clocks and temperature: nvidia-smi -q -d PERFORMANCE; other processes; its file system)"
    )
