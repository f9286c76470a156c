"""Gradients summed over the replicas while the backward pass still runs, for the direct ZeRO optimizer.

A hook on each parameter adds its gradient to the flat sum as soon as autograd has it. A bucket, a stretch of the flat
sum that one replica steps, travels to that replica once it is full: the links work while the GPUs go on computing, and
what is left to wait for at the end is the last bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

LARGEST_BUCKET = 2**25
"""Elements of a bucket: enough for the full speed of NVLink, few enough to leave little at the end."""


@dataclass
class _Bucket:
    """A stretch of a flat sum."""

    stretch: Tensor
    owner: int
    """Global rank of the replica that steps it."""
    awaited: int = 0
    """Parameters with a part in it."""
    missing: int = 0
    """Those of this step whose gradient is not there yet."""


@dataclass
class _Place:
    """Where a parameter's gradient goes."""

    view: Tensor
    buckets: list[_Bucket] = field(default_factory=list)
    arrived: bool = False


class OverlappedSums:
    """Sums gradients in flat buffers, and over the replicas.

    Args:
        replicas: group of the replicas; each owns an equal part of every buffer, in the order of ranks.
        bucket: elements of a bucket at most.
        due: tells whether the backward pass that runs is the last of its step.
        first: tells whether a step's sums are still empty.
    """

    def __init__(
        self, replicas: dist.ProcessGroup | None, bucket: int, due: Callable[[], bool], first: Callable[[], bool]
    ):
        self._replicas, self._bucket, self._due, self._first = replicas, min(bucket, LARGEST_BUCKET), due, first
        self._buckets: list[_Bucket] = []
        self._places: list[_Place] = []
        self._works: list[Any] = []

    def add_group(self, parameters: Sequence[Tensor], starts: Sequence[int], total: Tensor) -> None:
        """Watch parameters whose gradients belong at ``starts`` of the flat buffer ``total``."""
        ends = [start + parameter.numel() for parameter, start in zip(parameters, starts, strict=True)]
        buckets = self._cut(total, max(ends))
        self._buckets += buckets
        for parameter, start in zip(parameters, starts, strict=True):
            place = _Place(total.narrow(0, start, parameter.numel()))
            place.buckets += [bucket for bucket in buckets if _overlap(place.view, bucket.stretch)]
            for bucket in place.buckets:
                bucket.awaited += 1
                bucket.missing += 1
            self._places.append(place)
            parameter.register_post_accumulate_grad_hook(self._hook(place))

    def finish(self) -> None:
        """Behind the last backward pass: make the current stream wait until the sums are complete, and begin anew."""
        for place in self._places:
            if not place.arrived:  # it had no part in the loss
                if self._first():
                    place.view.zero_()
                self._arrived(place)
        for work in self._works:
            work.wait()
        self._works.clear()
        for place in self._places:
            place.arrived = False
        for bucket in self._buckets:
            bucket.missing = bucket.awaited

    def _cut(self, total: Tensor, used: int) -> list[_Bucket]:
        """Cut the ``used`` first elements of a flat buffer into buckets, none of which two replicas own."""
        replicas = dist.get_world_size(self._replicas)
        part = total.numel() // replicas
        buckets = []
        for replica in range(replicas):
            owner = replica if self._replicas is None else dist.get_global_rank(self._replicas, replica)
            end = min((replica + 1) * part, used)
            firsts = range(replica * part, end, self._bucket)
            buckets += [_Bucket(total.narrow(0, first, min(self._bucket, end - first)), owner) for first in firsts]
        return buckets

    def _hook(self, place: _Place) -> Callable[[Tensor], None]:
        @torch.no_grad()
        def arrive(parameter: Tensor) -> None:
            if not self._due():
                return
            gradient = parameter.grad
            assert gradient is not None
            if self._first():
                place.view.copy_(gradient.reshape(-1))
            else:
                place.view.add_(gradient.reshape(-1))
            parameter.grad = None
            self._arrived(place)

        return arrive

    def _arrived(self, place: _Place) -> None:
        if place.arrived:
            raise RuntimeError("a parameter has got its gradient twice in one backward pass: set overlap_comm: false")
        place.arrived = True
        for bucket in place.buckets:
            bucket.missing -= 1
            if bucket.missing == 0:
                self._works.append(dist.reduce(bucket.stretch, bucket.owner, group=self._replicas, async_op=True))


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Tell whether two stretches of one buffer have elements in common."""
    first, second = one.storage_offset(), other.storage_offset()
    return first < second + other.numel() and second < first + one.numel()
