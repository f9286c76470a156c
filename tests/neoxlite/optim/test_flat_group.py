"""A parameter group's gradients in the flat layout, and the norm of what counts in them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from neoxlite.optim.adamw import Partition
from neoxlite.optim.flat_group import FlatGroup

SIZES = (3, 4, 2)
"""Of three parameters; the flat layout has 12 elements, the last three for none of them."""
LAID = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 8.0, 9.0, 0.0, 0.0, 0.0]
"""By hand: the second parameter has no gradient."""


def group(counted: list[tuple[int, int]]) -> FlatGroup:
    """Gradients 1 to 3 and 8, 9 (in a row of two)."""
    parameters: list[Tensor] = [torch.zeros(3), torch.zeros(2, 2), torch.zeros(1, 2)]
    parameters[0].grad = torch.tensor([1.0, 2.0, 3.0])
    parameters[2].grad = torch.tensor([[8.0, 9.0]])
    part = Partition(*(torch.zeros(12) for _ in range(4)))
    return FlatGroup(parameters, [0, 3, 7], part, torch.zeros(12), counted, [True] * 3, None, None)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 12])
def test_stretches_of_the_flat_gradients(length: int) -> None:
    """Any of them, whether it begins or ends in a parameter, spans several, or lies behind all."""
    for start in range(12 - length + 1):
        into = torch.full((length,), float("nan"))
        group([]).lay(into, start)
        assert into.tolist() == LAID[start : start + length]


def test_norms_are_of_what_counts_in_each_piece() -> None:
    """Three pieces of four: of the partition's stretches 1 to 5 and 8 to 9, cut where a piece ends."""
    kept = group([(1, 5), (8, 1)])
    kept.keep(torch.tensor([5.0, 1.0, 2.0, 2.0, 3.0, 4.0, 7.0, 7.0, 9.0, 7.0, 7.0, 7.0]).split(4))
    assert torch.stack(kept.norms).tolist() == [3.0, 5.0, 9.0]
    assert [piece.numel() for piece in kept.own] == [4, 4, 4]
