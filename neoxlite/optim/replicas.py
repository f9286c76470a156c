"""What the replicas of a model exchange in a step of the direct ZeRO optimizer.

Gradients travel in the dtype that autograd left them in and are added in fp32 by the replica that steps them: half the
bytes of a sum that travels in fp32, and the same numbers. Weights travel piece by piece while the next is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PIECE = 2**25
"""Elements of a partition that are stepped and sent together: enough for the full speed of NVLink."""
_DIRECT_AT_MOST = 8
"""Replicas up to which each sends its pieces to each other one; more gather them along a ring in the end."""


def sum_partition(flat: Tensor, replicas: dist.ProcessGroup | None) -> Tensor:
    """Return the sum (fp32) over the replicas of this replica's partition; alone, ``flat`` itself.

    Args:
        flat: every replica's own, of one length; in the order of ranks, each replica has an equal part.
    """
    count = dist.get_world_size(replicas)
    if count == 1:
        return flat
    parts = torch.empty_like(flat)
    dist.all_to_all_single(parts, flat, group=replicas)
    return parts.view(count, -1).sum(0, dtype=torch.float32)


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
        if self._count == 1:
            yield 0, self._part
            return
        length = PIECE if self._direct else self._part
        for start in range(0, self._part, length):
            yield start, min(length, self._part - start)
            if self._direct:
                self._send(start, min(length, self._part - start))

    def wait(self) -> None:
        """Have the device go on when all weights are there."""
        for work in self._works:
            work.wait()
        self._works.clear()
        if self._count > 1 and not self._direct:
            own = self._flat.narrow(0, self._own * self._part, self._part)
            dist.all_gather_into_tensor(self._flat, own, group=self._replicas)

    def _send(self, start: int, length: int) -> None:
        transfers = []
        for other in range(self._count):
            if other == self._own:
                continue
            peer = other if self._replicas is None else dist.get_global_rank(self._replicas, other)
            mine, theirs = (self._flat.narrow(0, who * self._part + start, length) for who in (self._own, other))
            transfers.append(dist.P2POp(dist.isend, mine, peer, self._replicas))
            transfers.append(dist.P2POp(dist.irecv, theirs, peer, self._replicas))
        self._works += dist.batch_isend_irecv(transfers)
