"""Weights that are read by rows when they are needed, and what can be made of them without holding them.

Every conversion is a rearrangement of rows (slices joined, queries taken out of a fused matrix) or a cast. Said of
`Weight` objects, it costs no memory; the numbers go from file to file in blocks of rows.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

BLOCK_BYTES = 8 << 20
"""Most bytes of a weight that are in memory at a time, as far as one row is not more."""


@dataclass(frozen=True)
class Weight:
    """A tensor of at least one dimension that lies in files."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    rows: Callable[[int, int], Tensor]
    """Returns the rows from the first number up to, not including, the second: (count, *shape[1:])."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.numel * self.dtype.itemsize

    def blocks(self, limit: int = BLOCK_BYTES) -> Iterator[Tensor]:
        """Yield all rows in order, as contiguous tensors of at most ``limit`` bytes or one row."""
        row_bytes = max(1, math.prod(self.shape[1:]) * self.dtype.itemsize)
        step = max(1, limit // row_bytes)
        for start in range(0, self.shape[0], step):
            yield self.rows(start, min(start + step, self.shape[0])).contiguous()

    def whole(self) -> Tensor:
        """Return all of it."""
        return self.rows(0, self.shape[0])


def of_tensor(tensor: Tensor) -> Weight:
    """Return a weight that is in memory."""
    return Weight(tuple(tensor.shape), tensor.dtype, lambda start, end: tensor[start:end])


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Weight:
    """Return a weight of zeros."""
    return Weight(shape, dtype, lambda start, end: torch.zeros((end - start, *shape[1:]), dtype=dtype))


def part(weight: Weight, start: int, end: int) -> Weight:
    """Return the rows from ``start`` up to ``end`` of a weight as one."""
    return replace(
        weight,
        shape=(end - start, *weight.shape[1:]),
        rows=lambda first, last: weight.rows(start + first, start + last),
    )


def stacked(parts: Sequence[Weight]) -> Weight:
    """Return the weights one below the other."""
    if len(parts) == 1:
        return parts[0]
    bounds = [0, *itertools.accumulate(one.shape[0] for one in parts)]

    def rows(start: int, end: int) -> Tensor:
        found = []
        first = bisect.bisect_right(bounds, start) - 1
        for index in range(first, len(parts)):
            if bounds[index] >= end:
                break
            low, high = max(start, bounds[index]), min(end, bounds[index + 1])
            if low < high:
                found.append(parts[index].rows(low - bounds[index], high - bounds[index]))
        return found[0] if len(found) == 1 else torch.cat(found)

    return Weight((bounds[-1], *parts[0].shape[1:]), parts[0].dtype, rows)


def side_by_side(parts: Sequence[Weight]) -> Weight:
    """Return matrices with the same rows as one, their columns in order."""
    if len(parts) == 1:
        return parts[0]
    columns = sum(one.shape[1] for one in parts)
    return Weight(
        (parts[0].shape[0], columns),
        parts[0].dtype,
        lambda start, end: torch.cat([one.rows(start, end) for one in parts], dim=1),
    )


def cast(weight: Weight, dtype: torch.dtype) -> Weight:
    """Return the weight in another dtype."""
    if weight.dtype == dtype:
        return weight
    return Weight(weight.shape, dtype, lambda start, end: weight.rows(start, end).to(dtype))


def combined(parts: Sequence[Weight], *, mean: bool) -> Weight:
    """Return the sum of weights of one shape, added in fp32, or their mean where they are not all the same."""
    if len(parts) == 1:
        return parts[0]

    def rows(start: int, end: int) -> Tensor:
        values = [one.rows(start, end) for one in parts]
        if mean and all(torch.equal(values[0], value) for value in values[1:]):
            return values[0]
        total = torch.stack([value.float() for value in values]).sum(0)
        return (total / len(values) if mean else total).to(parts[0].dtype)

    return replace(parts[0], rows=rows)


def flat(weight: Weight) -> Weight:
    """Return the elements of a weight as one dimension."""
    if len(weight.shape) == 1:
        return weight
    width = math.prod(weight.shape[1:])

    def rows(start: int, end: int) -> Tensor:
        first = start // width
        elements = weight.rows(first, -(-end // width)).reshape(-1)
        return elements[start - first * width : end - first * width]

    return Weight((weight.numel,), weight.dtype, rows)


def shaped(elements: Weight, shape: tuple[int, ...]) -> Weight:
    """Return one dimension of elements as a weight of ``shape``; the inverse of `flat`."""
    width = math.prod(shape[1:])
    return Weight(
        shape, elements.dtype, lambda start, end: elements.rows(start * width, end * width).view(-1, *shape[1:])
    )


def sliced(whole: Weight, dim: int, parts: Sequence[int], rank: int, size: int) -> Weight:
    """Return the slice of tensor-parallel rank ``rank`` of ``size`` out of the whole; the inverse of `joined`."""
    if size == 1:
        return whole
    if dim == 1:
        width = whole.shape[1] // size
        return Weight(
            (whole.shape[0], width),
            whole.dtype,
            lambda start, end: whole.rows(start, end)[:, rank * width : (rank + 1) * width],
        )
    bounds = [0, *itertools.accumulate(parts)]
    lengths = [length // size for length in parts]
    return stacked(
        [
            part(whole, low + rank * length, low + (rank + 1) * length)
            for low, length in zip(bounds, lengths, strict=False)
        ]
    )


def copy_elements(source: Weight, first: int, target: Tensor, limit: int = BLOCK_BYTES) -> None:
    """Fill the flat ``target`` with elements of ``source`` from number ``first`` on, block by block."""
    elements, step = flat(source), max(1, limit // source.dtype.itemsize)
    for start in range(0, target.numel(), step):
        end = min(start + step, target.numel())
        target[start:end].copy_(elements.rows(first + start, first + end))


def joined(slices: Sequence[Weight], dim: int, parts: Sequence[int]) -> Weight:
    """Return the whole from the slices of all tensor-parallel ranks (`neoxlite.parallel.slicing.Slicing`).

    Args:
        slices: one a rank, in their order.
        dim: along which it was sliced: 0, or 1.
        parts: full lengths along ``dim`` of what was sliced each by itself.
    """
    if len(slices) == 1:
        return slices[0]
    if dim == 1:
        return side_by_side(slices)
    bounds = [0, *itertools.accumulate(length // len(slices) for length in parts)]
    return stacked([part(one, low, high) for low, high in itertools.pairwise(bounds) for one in slices])
