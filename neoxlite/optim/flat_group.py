"""A parameter group of the direct ZeRO optimizer: where its gradients lie, before and behind their sum."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neoxlite.optim.adamw import Partition

if TYPE_CHECKING:
    from neoxlite.optim.triton_adamw import GradientTable


@dataclass
class FlatGroup:
    """A parameter group on this rank. All flat buffers have the layout of DeepSpeed's flat weights."""

    parameters: Sequence[Tensor]
    starts: Sequence[int]
    """First element of each in the flat buffers, ascending from 0; nothing lies between them."""
    part: Partition
    flat_weights: Tensor
    counted: list[tuple[int, int]]
    """Stretches (start, length) of the partition whose gradients count in the norm of the whole model."""
    counts: list[bool]
    """The same by parameter."""
    table: GradientTable | None
    total: Tensor | None
    """Sum of the gradients over the micro-batches, fp32; None where they are not summed here."""
    own: list[Tensor] = field(default_factory=list)
    """Gradient of the partition, in pieces, from the last micro-batch to the step; none: it is where autograd left it.
    """
    norms: list[Tensor] = field(default_factory=list)
    """L2 norms (0-dim fp32) of what counts in `own`."""

    @property
    def views(self) -> list[Tensor]:
        """Each parameter's stretch of `total`."""
        assert self.total is not None
        return [
            self.total.narrow(0, start, parameter.numel())
            for parameter, start in zip(self.parameters, self.starts, strict=True)
        ]

    def add(self, *, first: bool) -> None:
        """Add the gradients to `total`, which ``first`` sets, by torch's operations."""
        views, gradients = self.views, [_gradient(parameter) for parameter in self.parameters]
        if first:
            torch._foreach_copy_(views, gradients)
        else:
            torch._foreach_add_(views, [gradient.to(views[0].dtype) for gradient in gradients])

    def lay(self, into: Tensor, start: int) -> None:
        """Write the gradients from element ``start`` of the flat layout on; what no parameter fills is 0."""
        end, filled = start + into.numel(), start
        views, gradients = [], []
        for number in range(bisect_right(self.starts, start) - 1, bisect_left(self.starts, end)):
            first, gradient = self.starts[number], _gradient(self.parameters[number])
            low, high = max(first, start), min(first + gradient.numel(), end)
            if low < high:
                views.append(into.narrow(0, low - start, high - low))
                gradients.append(gradient.narrow(0, low - first, high - low))
                filled = high
        if views:
            torch._foreach_copy_(views, gradients)
        into.narrow(0, filled - start, end - filled).zero_()

    def keep(self, own: Iterable[Tensor]) -> None:
        """Keep the gradient of the partition, and the norm of each piece of it as soon as that is there."""
        self.own, self.norms, start = [], [], 0
        for piece in own:
            counted = [piece.narrow(0, *stretch) for stretch in cut(self.counted, start, piece.numel())]
            if counted:
                self.norms += torch._foreach_norm(counted, 2, dtype=torch.float32)
            self.own.append(piece)
            start += piece.numel()

    def free(self) -> None:
        """Let go of the gradients that autograd left."""
        for parameter in self.parameters:
            parameter.grad = None


def cut(ranges: Sequence[tuple[int, int]], start: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of ``ranges`` (start, length; ascending) inside a window, counted from its start, joined."""
    begin: int | None = None
    end = 0
    for first, numel in ranges:
        low, high = max(first, start), min(first + numel, start + length)
        if low >= high:
            continue
        if begin is not None and low == end:
            end = high
            continue
        if begin is not None:
            yield begin - start, end - begin
        begin, end = low, high
    if begin is not None:
        yield begin - start, end - begin


def _gradient(parameter: Tensor) -> Tensor:
    """Return a parameter's gradient, flat."""
    return (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).reshape(-1)
