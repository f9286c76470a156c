"""What replicas exchange, on real ranks: sums of partitions in fp32, and weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

LENGTH = 24
"""Of a flat buffer: two, three and four equal parts."""


def numbers(rank: int) -> Tensor:
    """Gradients of a replica in bf16, whose sum in bf16 would round."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(LENGTH, generator=generator).mul(10.0 ** (rank % 3)).to(torch.bfloat16)


def exchanged(ranks: Any, piece: int, at_most: int) -> tuple[Tensor, Tensor]:
    """Return this replica's sums, and the weights after each replica wrote its own number into its partition."""
    from neoxlite.optim import replicas
    from neoxlite.parallel.distributed import join_world, leave_world

    replicas.PIECE, replicas._DIRECT_AT_MOST = piece, at_most
    join_world(ranks, torch.device("cpu"))
    flat = numbers(ranks.rank)

    def lay(into: Tensor, start: int) -> None:
        into.copy_(flat.narrow(0, start, into.numel()))

    sums = list(replicas.partition_sums(lay, flat, None))
    assert torch.equal(flat, numbers(ranks.rank)), "what is sent stays"
    assert [(one.numel(), one.dtype) for one in sums] == [
        (length, torch.float32) for _, length in replicas.pieces(LENGTH // ranks.world_size, None)
    ]
    weights = torch.zeros(LENGTH)
    shared = replicas.SharedWeights(weights, None)
    own = weights.view(ranks.world_size, -1)[ranks.rank]
    for start, length in shared.pieces():
        own.narrow(0, start, length).fill_(ranks.rank + 1)
    shared.wait()
    leave_world()
    return torch.cat(sums), weights


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # torch renames its collectives
@pytest.mark.parametrize(("size", "piece", "at_most"), [(2, 5, 8), (3, 8, 8), (4, 4, 8), (2, 5, 1)])
def test_sums_are_exact_whatever_the_pieces(size: int, piece: int, at_most: int, world: Any) -> None:
    """In fp64 but for fp32's rounding: in pieces that divide a partition or do not, and in one collective."""
    exact = torch.stack([numbers(rank).double() for rank in range(size)]).sum(0).view(size, -1)
    for rank, (total, weights) in enumerate(world.run(size, exchanged, piece, at_most)):
        torch.testing.assert_close(total.double(), exact[rank], rtol=1e-6, atol=1e-6)
        assert weights.view(size, -1).tolist() == [[float(other + 1)] * (LENGTH // size) for other in range(size)]
