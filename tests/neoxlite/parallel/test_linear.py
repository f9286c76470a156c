"""Sliced matrices against whole ones, on two real ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from neoxlite.errors import ConfigError
from neoxlite.parallel.linear import ColumnParallelLinear, RowParallelLinear
from neoxlite.parallel.topology import Grid, Topology, create_topology


def _two_layers(ranks: Any) -> dict[str, torch.Tensor]:
    from neoxlite.parallel.distributed import join_world, leave_world

    join_world(ranks, torch.device("cpu"))
    topology = create_topology(Grid(tensor=2), ranks.rank)
    first, second, x = _weights()
    column = ColumnParallelLinear(6, 8, bias=True, topology=topology, what="test")
    row = RowParallelLinear(8, 6, bias=True, topology=topology, what="test")
    with torch.no_grad():
        column.weight.copy_(first.weight.chunk(2, 0)[ranks.rank])
        column.bias.copy_(first.bias.chunk(2, 0)[ranks.rank])
        row.weight.copy_(second.weight.chunk(2, 1)[ranks.rank])
        row.bias.copy_(second.bias)
    out = row(torch.relu(column(x)))
    out.square().sum().backward()
    leave_world()
    return {
        "out": out.detach(),
        "x": x.grad,
        "column": column.weight.grad,
        "row": row.weight.grad,
        "bias": row.bias.grad,
    }


def _weights() -> tuple[torch.nn.Linear, torch.nn.Linear, torch.Tensor]:
    torch.manual_seed(3)
    return torch.nn.Linear(6, 8), torch.nn.Linear(8, 6), torch.randn(5, 6, requires_grad=True)


def test_column_then_row_equals_the_whole_matrices(world: Any) -> None:
    """Output and gradients of two tensor-parallel ranks are the unsliced layers'; the row's bias counts once."""
    got = world.run(2, _two_layers)
    first, second, x = _weights()
    out = second(torch.relu(first(x)))
    out.square().sum().backward()
    for rank, tensors in enumerate(got):
        torch.testing.assert_close(tensors["out"], out.detach())
        torch.testing.assert_close(tensors["x"], x.grad)
        torch.testing.assert_close(tensors["column"], first.weight.grad.chunk(2, 0)[rank])
        torch.testing.assert_close(tensors["row"], second.weight.grad.chunk(2, 1)[rank])
        torch.testing.assert_close(tensors["bias"], second.bias.grad)


def test_a_matrix_that_cannot_be_sliced_is_refused() -> None:
    """The message says what does not divide."""
    topology = Topology(Grid(tensor=2), 0)
    with pytest.raises(ConfigError, match="MLP width: 7"):
        ColumnParallelLinear(4, 7, bias=False, topology=topology, what="MLP width")
