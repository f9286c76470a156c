"""Weights that are read by rows: slices of tensor-parallel ranks, and elements that are copied block by block."""

from __future__ import annotations

import pytest
import torch

from neoxlite.convert.weight import Weight, copy_elements, joined, of_tensor, sliced
from neoxlite.parallel.slicing import Slicing


@pytest.mark.parametrize(
    ("shape", "dim", "parts"), [((12, 5), 0, (12,)), ((12, 5), 0, (4, 8)), ((12,), 0, (8, 4)), ((3, 8), 1, (8,))]
)
def test_slices_are_those_of_training_and_join_to_the_whole(
    shape: tuple[int, ...], dim: int, parts: tuple[int, ...]
) -> None:
    """`Slicing`, by which layers slice, takes the same, and the slices side by side are the whole."""
    whole = torch.randn(shape)
    for size in (1, 2, 4):
        slices = [sliced(of_tensor(whole), dim, parts, rank, size) for rank in range(size)]
        for rank, one in enumerate(slices):
            assert torch.equal(one.whole(), Slicing(shape, dim, parts).take(whole, rank, size))
            assert one.shape == one.whole().shape
        assert torch.equal(joined(slices, dim, parts).whole(), whole)


@pytest.mark.parametrize("limit", [1, 4, 12, 44, 1 << 20])
def test_elements_come_in_blocks_wherever_they_begin(limit: int) -> None:
    """No block asked for has more bytes than the limit and the rows that it begins and ends in."""
    matrix = torch.arange(35.0).view(7, 5)
    asked: list[int] = []

    def rows(start: int, end: int) -> torch.Tensor:
        asked.append(end - start)
        return matrix[start:end]

    for first in (0, 3, 5, 17):
        target = torch.zeros(18)
        copy_elements(Weight((7, 5), torch.float32, rows), first, target, limit)
        assert torch.equal(target, matrix.view(-1)[first : first + 18])
    assert max(asked) <= limit // 20 + 2
