"""Triton kernels of `neoxlite.model.fused`: backward of GELU and of rotary embedding, each with the sum for the bias.

Each reads what it needs once: torch's compiler writes the gradient, and reads it again for the bias. A program's sums
over its rows go into a row of their own, which torch adds up: the result does not depend on the order of programs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 128
"""Rows of a program."""
_GELU_ROWS, _AT_ONCE, _WIDTH, _WARPS = 64, 1, 1024, 4
"""Of the GELU kernel: rows of a program, and rows and columns that it has in registers."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _gelu_derivative(x, TANH: tl.constexpr):  # type: ignore[no-untyped-def]
    """d gelu(x) / dx; erf by Abramowitz and Stegun 7.1.26 (error below 1.5e-7): the density's exponential is in it."""
    if TANH:
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        tanh = 1.0 - 2.0 / (tl.exp(2.0 * inner) + 1.0)
        slope = 0.7978845608028654 * (1.0 + 0.134145 * x * x)
        return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope
    density = tl.exp2(x * x * -0.72134752044448170)  # exp(-x^2 / 2)
    t = 1.0 / (1.0 + 0.23164188720 * tl.abs(x))
    poly = 0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
    tail = density * t * poly
    return tl.where(x >= 0, 1.0 - tail, tail) + x * density * 0.3989422804014327


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _gelu_backward(  # type: ignore[no-untyped-def]
    grad,
    x,
    out,
    sums,
    largest,
    rows,
    width,
    TANH: tl.constexpr,
    PEAK: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
):
    block = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * W + tl.arange(0, W)
    total = tl.zeros((R, W), tl.float32)
    peak = tl.zeros((R, W), tl.float32)
    for first in range(0, ROWS, R):
        row = block * ROWS + first + tl.arange(0, R)
        place = row[:, None] * width + column[None, :]
        keep = (row[:, None] < rows) & (column[None, :] < width)
        if WHOLE:  # a mask that is always true costs
            g, u = tl.load(grad + place), tl.load(x + place)
        else:
            g, u = tl.load(grad + place, mask=keep, other=0.0), tl.load(x + place, mask=keep, other=0.0)
        d = g.to(tl.float32) * _gelu_derivative(u.to(tl.float32), TANH)
        total += d
        if PEAK:
            peak = tl.maximum(peak, tl.abs(d))
        if WHOLE:
            tl.store(out + place, d.to(out.dtype.element_ty))
        else:
            tl.store(out + place, d.to(out.dtype.element_ty), mask=keep)
    tl.store(sums + block * width + column, tl.sum(total, 0), mask=column < width)
    if PEAK:
        tl.store(largest + block * tl.num_programs(1) + tl.program_id(1), tl.max(tl.max(peak, 1), 0))


def gelu_backward(grad: Tensor, x: Tensor, tanh: bool, peak: bool) -> tuple[Tensor, Tensor, Tensor]:
    """See `neoxlite.model.fused`; both (rows, width), contiguous."""
    rows, width = x.shape
    grid = (triton.cdiv(rows, _GELU_ROWS), triton.cdiv(width, _WIDTH))
    out = torch.empty_like(x)
    sums = torch.empty(grid[0], width, dtype=torch.float32, device=x.device)
    largest = torch.empty(grid if peak else (), dtype=torch.float32, device=x.device)
    whole = rows % _GELU_ROWS == 0 and width % _WIDTH == 0
    sizes = {"WHOLE": whole, "ROWS": _GELU_ROWS, "R": _AT_ONCE, "W": _WIDTH, "num_warps": _WARPS}
    _gelu_backward[grid](grad, x, out, sums, largest, rows, width, TANH=tanh, PEAK=peak, **sizes)
    return out, sums.sum(0).to(x.dtype), largest.max() if peak else largest


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _rotary_backward(  # type: ignore[no-untyped-def]
    grad,
    batch_stride,
    head_stride,
    token_stride,
    cos,
    sin,
    out,
    sums,
    largest,
    rows,
    length,
    width,
    first_column,
    head_columns,
    SIZE: tl.constexpr,
    ROTATED: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
    PEAK: tl.constexpr,
    ROWS: tl.constexpr,
    R: tl.constexpr,
):
    """Turn one head's gradients back, (batch, heads, length, SIZE) into its columns of (rows, width).

    HALF and REST are ROTATED / 2 and SIZE - ROTATED, rounded up to powers of two.
    """
    block = tl.program_id(0)
    head = tl.program_id(1)
    half: tl.constexpr = ROTATED // 2
    j = tl.arange(0, HALF)
    jr = ROTATED + tl.arange(0, REST)
    columns = first_column + head * head_columns
    sum_low = tl.zeros((R, HALF), tl.float32)
    sum_high = tl.zeros((R, HALF), tl.float32)
    sum_rest = tl.zeros((R, REST), tl.float32)
    peak = tl.zeros((R,), tl.float32)
    for step in range(0, ROWS, R):
        row = block * ROWS + step + tl.arange(0, R)
        here = (row < rows)[:, None]
        token = row % length
        source = (row // length).to(tl.int64) * batch_stride + token.to(tl.int64) * token_stride + head * head_stride
        target = row.to(tl.int64) * width + columns
        if ROTATED > 0:
            keep = here & (j < half)[None, :]
            c = tl.load(cos + token[:, None] * ROTATED + j[None, :], mask=keep, other=0.0).to(tl.float32)
            s = tl.load(sin + token[:, None] * ROTATED + j[None, :], mask=keep, other=0.0).to(tl.float32)
            low = tl.load(grad + source[:, None] + j[None, :], mask=keep, other=0.0).to(tl.float32)
            high = tl.load(grad + source[:, None] + half + j[None, :], mask=keep, other=0.0).to(tl.float32)
            back_low = low * c + high * s
            back_high = high * c - low * s
            tl.store(out + target[:, None] + j[None, :], back_low.to(out.dtype.element_ty), mask=keep)
            tl.store(out + target[:, None] + half + j[None, :], back_high.to(out.dtype.element_ty), mask=keep)
            sum_low += back_low
            sum_high += back_high
            if PEAK:
                peak = tl.maximum(peak, tl.max(tl.maximum(tl.abs(back_low), tl.abs(back_high)), 1))
        if ROTATED < SIZE:
            keep = here & (jr < SIZE)[None, :]
            rest = tl.load(grad + source[:, None] + jr[None, :], mask=keep, other=0.0).to(tl.float32)
            tl.store(out + target[:, None] + jr[None, :], rest.to(out.dtype.element_ty), mask=keep)
            sum_rest += rest
            if PEAK:
                peak = tl.maximum(peak, tl.max(tl.abs(rest), 1))
    place = sums + block.to(tl.int64) * width + columns
    if ROTATED > 0:
        tl.store(place + j, tl.sum(sum_low, 0), mask=j < half)
        tl.store(place + half + j, tl.sum(sum_high, 0), mask=j < half)
    if ROTATED < SIZE:
        tl.store(place + jr, tl.sum(sum_rest, 0), mask=jr < SIZE)
    if PEAK:
        tl.store(largest + block * tl.num_programs(1) + head, tl.max(peak, 0))


def qkv_backward(
    grads: tuple[Tensor, Tensor, Tensor], cos: Tensor, sin: Tensor, places: tuple[tuple[int, int], ...], peak: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `neoxlite.model.fused`; ``places``: of q, k and v the first column, and the columns from head to head."""
    batch, _, length, size = grads[0].shape
    rows, width = batch * length, sum(grad.shape[1] for grad in grads) * size
    blocks = triton.cdiv(rows, _ROWS)
    device = cos.device
    out = torch.empty(rows, width, dtype=grads[0].dtype, device=device)
    sums = torch.empty(blocks, width, dtype=torch.float32, device=device)
    heads = max(grad.shape[1] for grad in grads)
    largest = torch.zeros((3, blocks, heads) if peak else (3,), dtype=torch.float32, device=device)
    parts = zip(grads, (cos.shape[1], cos.shape[1], 0), places, largest, strict=True)
    for grad, rotated, (first, step), part in parts:
        if grad.stride(-1) != 1:
            grad = grad.contiguous()
        _rotary_backward[blocks, grad.shape[1]](
            grad,
            *grad.stride()[:3],
            cos,
            sin,
            out,
            sums,
            part,
            rows,
            length,
            width,
            first,
            step,
            SIZE=size,
            ROTATED=rotated,
            HALF=triton.next_power_of_2(max(rotated // 2, 1)),
            REST=triton.next_power_of_2(max(size - rotated, 1)),
            PEAK=peak,
            ROWS=_ROWS,
            R=16,
            num_warps=4,
        )
    return out, sums.sum(0).to(out.dtype), largest.max() if peak else largest[0]
