"""What the replicas of a model exchange in a step of the direct ZeRO optimizer.

Gradients travel in the dtype that autograd left them in and are added in fp32 by the replica that steps them: half the
bytes of a sum that travels in fp32, and the same numbers. A piece is added while the next travels; weights travel piece
by piece while the next is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PIECE = 2**25
"""Elements of a partition that are computed and sent together: enough for the full speed of NVLink."""
_DIRECT_AT_MOST = 8
"""Replicas up to which each sends its pieces to each other one; more exchange them in one collective."""


def sum_partition(flat: Tensor, replicas: dist.ProcessGroup | None) -> Tensor:
    """Return the sum (fp32) over the replicas of this replica's partition; alone, ``flat`` itself.

    Args:
        flat: every replica's own, of one length; in the order of ranks, each replica has an equal part.
    """
    count = dist.get_world_size(replicas)
    if count == 1:
        return flat
    parts = torch.empty_like(flat).view(count, -1)
    if count > _DIRECT_AT_MOST:
        dist.all_to_all_single(parts, flat, group=replicas)
        return parts.sum(0, dtype=torch.float32)
    mine, own = flat.view(count, -1), dist.get_rank(replicas)
    pieces = list(_pieces(parts.shape[1]))
    # All pieces are under way before the first is added; this replica's own part needs no wire.
    works = [_exchange(mine.narrow(1, *piece), parts.narrow(1, *piece), replicas) for piece in pieces]
    parts[own].copy_(mine[own])
    total = torch.empty(parts.shape[1], dtype=torch.float32, device=flat.device)
    for piece, transfers in zip(pieces, works, strict=True):
        for transfer in transfers:
            transfer.wait()
        torch.sum(parts.narrow(1, *piece), 0, dtype=torch.float32, out=total.narrow(0, *piece))
    return total


def _pieces(numel: int) -> Iterator[tuple[int, int]]:
    """Yield (start, length) of the pieces of a partition."""
    for start in range(0, numel, PIECE):
        yield start, min(PIECE, numel - start)


def _exchange(sent: Tensor, received: Tensor, replicas: dist.ProcessGroup | None) -> list[Any]:
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
        if self._count == 1 or not self._direct:
            yield 0, self._part
            return
        flat = self._flat.view(self._count, -1)
        for piece in _pieces(self._part):
            yield piece
            row = flat.narrow(1, *piece)
            self._works += _exchange(row[self._own].expand(self._count, -1), row, self._replicas)

    def wait(self) -> None:
        """Have the device go on when all weights are there."""
        for work in self._works:
            work.wait()
        self._works.clear()
        if self._count > 1 and not self._direct:
            own = self._flat.narrow(0, self._own * self._part, self._part)
            dist.all_gather_into_tensor(self._flat, own, group=self._replicas)
