"""Slices of parameters and the way back."""

from __future__ import annotations

import torch

from neoxlite.parallel.slicing import Slicing


def test_each_part_is_sliced_by_itself() -> None:
    """Rank 0 of 2 gets the first half of the value's rows and the first half of the gate's, not the whole value."""
    slicing = Slicing((4, 2), 0, (2, 2))
    full = torch.arange(8).view(4, 2)
    assert slicing.take(full, 0, 2).tolist() == [[0, 1], [4, 5]]
    assert slicing.take(full, 1, 2).tolist() == [[2, 3], [6, 7]]


def test_join_undoes_take() -> None:
    """For rows, columns and unequal parts, over one, two and four ranks."""
    for slicing in (Slicing((8, 3), 0, (8,)), Slicing((3, 8), 1, (8,)), Slicing((16, 2), 0, (8, 4, 4))):
        full = torch.rand(slicing.full_shape)
        for size in (1, 2, 4):
            slices = [slicing.take(full, rank, size) for rank in range(size)]
            assert all(tuple(part.shape) == slicing.local_shape(size) for part in slices)
            assert torch.equal(slicing.join(slices), full)
