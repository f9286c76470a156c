"""What the replicas of a model exchange in a step of the direct ZeRO optimizer.

Gradients travel in the dtype that autograd left them in and are added in fp32 by the replica that steps them: half the
bytes of a sum that travels in fp32, and the same numbers. They go piece by piece: one is laid flat while those before
it travel, and added as soon as it is there. Weights travel piece by piece while the next are computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PIECE = 2**26
"""Elements of a partition that are computed and sent together.

A message costs some 50 us on top of its bytes (docs/multi-gpu.md, bandwidth), and nothing hides the first and the last
piece: between the two this is the least at a billion parameters.
"""
_AHEAD = 2
"""Pieces of gradients that travel while one before them is added: enough for the wire, and a small part of all."""
_DIRECT_AT_MOST = 8
"""Replicas up to which each sends its pieces to each other one; more exchange them in one collective."""


def pieces(numel: int, replicas: dist.ProcessGroup | None) -> list[tuple[int, int]]:
    """Return (start, length) of the pieces of a partition; it is one where nothing travels, or in one collective."""
    step = PIECE if 1 < dist.get_world_size(replicas) <= _DIRECT_AT_MOST else numel
    return [(start, min(step, numel - start)) for start in range(0, numel, step)]


def partition_sums(
    lay: Callable[[Tensor, int], None], like: Tensor, replicas: dist.ProcessGroup | None
) -> Iterator[Tensor]:
    """Yield the sums (fp32) over the replicas of this replica's partition of flat gradients, in `pieces`.

    Args:
        lay: writes this replica's flat gradients from an element on (the second argument) into a tensor (the first).
        like: has their length, dtype and device; in the order of ranks, each replica has an equal part.
    """
    count, own = dist.get_world_size(replicas), dist.get_rank(replicas)
    direct, part = count <= _DIRECT_AT_MOST, like.numel() // count
    under_way: deque[tuple[Tensor, Tensor, list[Any]]] = deque()
    for start, length in pieces(part, replicas):
        sent, received = (like.new_empty(count, length) for _ in range(2))
        rows = list(sent)
        if direct:
            rows[own] = received[own]  # it needs no wire
        for replica, row in enumerate(rows):
            lay(row, replica * part + start)
        if direct:
            works = _exchange(rows, received, replicas)
        else:
            works = [dist.all_to_all_single(received, sent, group=replicas, async_op=True)]
        under_way.append((sent, received, works))
        if len(under_way) > _AHEAD:
            yield _sum(*under_way.popleft())
    while under_way:
        yield _sum(*under_way.popleft())


def _sum(_sent: Tensor, received: Tensor, works: list[Any]) -> Tensor:
    """Have the device go on with the sum when all is there."""
    for work in works:
        work.wait()
    return received.sum(0, dtype=torch.float32)


def _exchange(sent: Sequence[Tensor], received: Tensor, replicas: dist.ProcessGroup | None) -> list[Any]:
    """Begin to send each other replica its row of ``sent``, and to receive its row of ``received``."""
    own = dist.get_rank(replicas)
    transfers = []
    for other in range(len(sent)):
        if other != own:
            peer = other if replicas is None else dist.get_global_rank(replicas, other)
            transfers.append(dist.P2POp(dist.isend, sent[other], peer, replicas))
            transfers.append(dist.P2POp(dist.irecv, received[other], peer, replicas))
    return dist.batch_isend_irecv(transfers)


class SharedWeights:
    """Flat weights of which each replica changes its partition and all receive all.

    Args:
        flat: in the order of ranks, each replica has an equal part.
    """

    def __init__(self, flat: Tensor, replicas: dist.ProcessGroup | None):
        self._flat, self._replicas = flat, replicas
        self._count, self._own = dist.get_world_size(replicas), dist.get_rank(replicas)
        self._part = flat.numel() // self._count
        self._direct = self._count <= _DIRECT_AT_MOST
        self._works: list[Any] = []

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Yield (start, length) in the partition; behind each, what was changed there is sent on."""
        flat = self._flat.view(self._count, -1)
        for piece in pieces(self._part, self._replicas):
            yield piece
            if self._count > 1 and self._direct:
                row = flat.narrow(1, *piece)
                self._works += _exchange([row[self._own]] * self._count, row, self._replicas)

    def wait(self) -> None:
        """Have the device go on when all weights are there."""
        for work in self._works:
            work.wait()
        self._works.clear()
        if self._count > 1 and not self._direct:
            own = self._flat.narrow(0, self._own * self._part, self._part)
            dist.all_gather_into_tensor(self._flat, own, group=self._replicas)
