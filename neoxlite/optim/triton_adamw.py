"""Triton kernels of the direct ZeRO optimizer: AdamW and the fp32 sum of gradients that stay where autograd left them.

A `GradientTable` gives the kernels the addresses of all gradients of a group, so that neither thousands of launches nor
copies into one buffer are needed. Measured on an H200: docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from neoxlite.optim.adamw import Partition, Rates

_BLOCK = 1024
_ALIGNMENT = 16  # elements: loads of this many are one instruction


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _adamw(  # type: ignore[no-untyped-def]
    i, keep, gradient, weights, master, exp_avg, exp_avg_sq, coefficient, lr, beta1, beta2, eps, decay, fix1, fix2
):
    """Update the elements ``i`` of the flat buffers; a coefficient that is NaN stores nothing."""
    factor = tl.load(coefficient)
    g = gradient.to(tl.float32) * factor
    w = tl.load(master + i, mask=keep, other=0.0)
    m = beta1 * tl.load(exp_avg + i, mask=keep, other=0.0) + (1 - beta1) * g
    v = beta2 * tl.load(exp_avg_sq + i, mask=keep, other=0.0) + (1 - beta2) * g * g
    w = w - lr * (m * fix1 / (tl.sqrt(v) * fix2 + eps) + decay * w)
    keep = keep & (factor == factor)
    tl.store(master + i, w, mask=keep)
    tl.store(exp_avg + i, m, mask=keep)
    tl.store(exp_avg_sq + i, v, mask=keep)
    tl.store(weights + i, w.to(weights.dtype.element_ty), mask=keep)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _adamw_flat(  # type: ignore[no-untyped-def]
    gradient,
    weights,
    master,
    exp_avg,
    exp_avg_sq,
    numel,
    coefficient,
    lr,
    beta1,
    beta2,
    eps,
    decay,
    fix1,
    fix2,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = i < numel
    g = tl.load(gradient + i, mask=keep, other=0.0)
    _adamw(i, keep, g, weights, master, exp_avg, exp_avg_sq, coefficient, lr, beta1, beta2, eps, decay, fix1, fix2)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _place(addresses, sizes, starts, owners, firsts, like, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return gradients of this program, their places in the flat buffers, and which of them exist.

    ``like`` is a pointer of the gradients' type.
    """
    program = tl.program_id(0)
    owner = tl.load(owners + program)
    first = tl.load(firsts + program)
    size = tl.load(sizes + owner)
    start = tl.load(starts + owner)
    gradient = tl.load(addresses + owner).to(like.dtype)
    if ALIGNED:  # without these hints the loads of a masked block are not vectorised: twice the time
        first = tl.multiple_of(first, 16)
        size = tl.multiple_of(size, 16)
        start = tl.multiple_of(start, 16)
        gradient = tl.multiple_of(gradient, 16)
    i = first + tl.arange(0, BLOCK)
    keep = i < size
    return tl.load(gradient + i, mask=keep, other=0.0), start + i, keep


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _adamw_in_place(  # type: ignore[no-untyped-def]
    addresses,
    sizes,
    starts,
    owners,
    firsts,
    weights,
    master,
    exp_avg,
    exp_avg_sq,
    coefficient,
    lr,
    beta1,
    beta2,
    eps,
    decay,
    fix1,
    fix2,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    g, i, keep = _place(addresses, sizes, starts, owners, firsts, weights, ALIGNED, BLOCK)
    _adamw(i, keep, g, weights, master, exp_avg, exp_avg_sq, coefficient, lr, beta1, beta2, eps, decay, fix1, fix2)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _accumulate(  # type: ignore[no-untyped-def]
    addresses,
    sizes,
    starts,
    owners,
    firsts,
    like,
    total,
    FIRST: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    g, i, keep = _place(addresses, sizes, starts, owners, firsts, like, ALIGNED, BLOCK)
    g = g.to(tl.float32)
    if not FIRST:
        g += tl.load(total + i, mask=keep, other=0.0)
    tl.store(total + i, g, mask=keep)


class GradientTable:
    """Where the gradients of a group's parameters lie, for kernels.

    Args:
        parameters: on one CUDA device, of one dtype, which their gradients share.
        starts: first element of each in the group's flat buffers.
    """

    def __init__(self, parameters: Sequence[Tensor], starts: Sequence[int]):
        self._parameters = parameters
        self._device = parameters[0].device
        sizes = [parameter.numel() for parameter in parameters]
        blocks = [(owner, first) for owner, size in enumerate(sizes) for first in range(0, size, _BLOCK)]
        self._sizes, self._starts = self._table(sizes), self._table(list(starts))
        self._owners, self._firsts = (self._table(list(column)) for column in zip(*blocks, strict=True))
        self._programs = len(blocks)
        self._aligned_sizes = all(number % _ALIGNMENT == 0 for number in (*sizes, *starts))
        self._known: list[int] = []

    def _table(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)

    def _addresses(self) -> Tensor:
        """Return the address of each gradient; they are sent anew only when the allocator has moved one."""
        addresses = [_gradient(parameter).data_ptr() for parameter in self._parameters]
        if addresses != self._known:
            self._known = addresses
            self._sent = torch.tensor(addresses, dtype=torch.int64).pin_memory().to(self._device, non_blocking=True)
            self._aligned = self._aligned_sizes and all(address % (2 * _ALIGNMENT) == 0 for address in addresses)
        return self._sent

    def _launch(self, kernel: Any, *arguments: Any, **constants: Any) -> None:
        places = (self._addresses(), self._sizes, self._starts, self._owners, self._firsts)
        kernel[(self._programs,)](*places, *arguments, **constants, ALIGNED=self._aligned, BLOCK=_BLOCK, num_warps=4)

    def update(self, part: Partition, coefficient: Tensor, rates: Rates) -> None:
        """Take a step of the whole group along ``coefficient`` times the gradients."""
        tensors = (part.weights, part.master, part.exp_avg, part.exp_avg_sq, coefficient)
        self._launch(_adamw_in_place, *tensors, *_numbers(rates))

    def accumulate(self, total: Tensor, *, first: bool) -> None:
        """Add the gradients to ``total`` (flat, fp32), which ``first`` sets."""
        self._launch(_accumulate, self._parameters[0], total, FIRST=first)


def update_flat(part: Partition, gradient: Tensor, coefficient: Tensor, rates: Rates) -> None:
    """Take a step along ``coefficient`` times ``gradient`` (flat)."""
    numel = part.master.numel()
    tensors = (part.weights, part.master, part.exp_avg, part.exp_avg_sq)
    _adamw_flat[(triton.cdiv(numel, _BLOCK),)](
        gradient, *tensors, numel, coefficient, *_numbers(rates), BLOCK=_BLOCK, num_warps=4
    )


def _numbers(rates: Rates) -> tuple[float, ...]:
    return (rates.lr, rates.beta1, rates.beta2, rates.eps, rates.weight_decay, rates.correction1, rates.correction2)


def _gradient(parameter: Tensor) -> Tensor:
    """Return a parameter's gradient as the kernels can read it."""
    gradient = parameter.grad
    if gradient is None:
        gradient = torch.zeros_like(parameter)
    if not gradient.is_contiguous():
        gradient = gradient.contiguous()
    parameter.grad = gradient
    return gradient
