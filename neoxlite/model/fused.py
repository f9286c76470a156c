"""A linear layer and what follows it as one function, whose backward pass is a hand-written kernel on GPUs.

torch's compiler writes the gradient behind a GELU or a rotary embedding, and reads it again to sum it for the bias; the
kernels of `neoxlite.model.triton_backward` do both in one pass. Elsewhere than on GPUs torch's own operations compute
the same. The matrix products may be in fp8 (`neoxlite.model.fp8`), whose scale the same pass finds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neoxlite.model.products import backward_product, forward_product


def linear_gelu(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, tanh: bool, fp8: str | None = None, group: str | None = None
) -> Tensor:
    """Return gelu(x @ weight.T + bias): (..., in) -> (..., out).

    Args:
        tanh: GELU by its tanh approximation.
        fp8: the products are in fp8, by the recipe of this name.
        group: name of the tensor-parallel group whose ranks have the other rows of ``weight``.
    """
    out: Tensor = _LinearGelu.apply(x.reshape(-1, x.shape[-1]), weight, bias, tanh, fp8, group)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


class _LinearGelu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tanh: bool, fp8: str | None, group: str | None
    ) -> Tensor:
        inner, *kept = forward_product(x, weight, bias, fp8=fp8)
        ctx.save_for_backward(inner, *kept)
        ctx.tanh, ctx.fp8, ctx.group, ctx.biased = tanh, fp8, group, bias is not None
        return _gelu(inner, tanh)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inner, *kept = ctx.saved_tensors
        grad, grad_bias, largest = torch.ops.neoxlite.gelu_backward(
            grad.contiguous(), inner, ctx.tanh, ctx.fp8 is not None
        )
        grad_x, grad_weight = backward_product(grad, kept, largest, fp8=ctx.fp8, group=ctx.group)
        return grad_x, grad_weight, grad_bias if ctx.biased else None, None, None, None


def _gelu(x: Tensor, tanh: bool) -> Tensor:
    """GELU; below fp32 the error function as in `triton_backward`, which costs half of torch's."""
    if tanh or x.dtype is torch.float32 or not x.is_cuda:
        return F.gelu(x, approximate="tanh" if tanh else "none")
    wide = x.float()
    t = 1.0 / (1.0 + 0.23164188720 * wide.abs())
    poly = 0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    tail = 0.5 * torch.exp(-0.5 * wide * wide) * t * poly
    return (wide * torch.where(wide >= 0, 1.0 - tail, tail)).to(x.dtype)


@torch.library.custom_op(
    "neoxlite::gelu_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor x, bool tanh, bool peak) -> (Tensor, Tensor, Tensor)",
)
def _gelu_backward(grad: Tensor, x: Tensor, tanh: bool, peak: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient of x (rows, width), its sum over the rows, and with ``peak`` its largest absolute value."""
    if x.is_cuda:
        from neoxlite.model.triton_backward import gelu_backward

        return gelu_backward(grad, x, tanh, peak)
    wide = x.float()
    if tanh:
        slope = math.sqrt(2 / math.pi)
        t = torch.tanh(slope * (wide + 0.044715 * wide**3))
        derivative = 0.5 * (1 + t) + 0.5 * wide * (1 - t * t) * slope * (1 + 3 * 0.044715 * wide**2)
    else:
        density = torch.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
        derivative = 0.5 * (1 + torch.erf(wide / math.sqrt(2))) + wide * density
    exact = grad.float() * derivative
    return exact.to(x.dtype), exact.sum(0).to(x.dtype), exact.abs().amax()


@_gelu_backward.register_fake
def _(grad: Tensor, x: Tensor, tanh: bool, peak: bool) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[1]), x.new_empty((), dtype=torch.float32)


def qkv_rotary(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tables: tuple[Tensor, Tensor],
    heads: tuple[int, int],
    *,
    fp8: str | None = None,
    group: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return q (batch, heads, length, size), k and v (batch, kv_heads, length, size), q and k rotated.

    Args:
        x: (batch, length, hidden).
        weight: in GPT-NeoX's order (`neoxlite.model.attention.SelfAttention`).
        tables: cos and sin (length, rotated features) of `neoxlite.model.rotary`, whose halves are equal.
        heads: numbers of heads and of key/value heads.
        fp8: the products are in fp8, by the recipe of this name.
        group: name of the tensor-parallel group whose ranks have the other heads.
    """
    batch, length, _ = x.shape
    q, k, v = _QKVRotary.apply(x.reshape(batch * length, -1), weight, bias, *tables, batch, *heads, fp8, group)  # type: ignore[no-untyped-call]
    return q, k, v


class _QKVRotary(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        batch: int,
        heads: int,
        kv_heads: int,
        fp8: str | None,
        group: str | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        qkv, *kept = forward_product(x, weight, bias, fp8=fp8)
        ctx.save_for_backward(cos, sin, *kept)
        ctx.fp8, ctx.group, ctx.biased = fp8, group, bias is not None
        q, k, v = split_heads(qkv.view(batch, -1, qkv.shape[-1]), heads, kv_heads)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin, *kept = ctx.saved_tensors
        grad, grad_bias, largest = torch.ops.neoxlite.qkv_backward(*grads, cos, sin, ctx.fp8 is not None)
        grad_x, grad_weight = backward_product(grad, kept, largest, fp8=ctx.fp8, group=ctx.group)
        return grad_x, grad_weight, grad_bias if ctx.biased else None, *[None] * 7


def split_heads(qkv: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return views of (batch, length, features): q (batch, heads, length, size), k and v (batch, kv_heads, ...)."""
    size = qkv.shape[-1] // (heads + 2 * kv_heads)
    if kv_heads == heads:
        parts: Sequence[Tensor] = qkv.view(*qkv.shape[:2], heads, 3, size).unbind(dim=3)
    else:
        widths = [heads * size, kv_heads * size, kv_heads * size]
        parts = [part.view(*qkv.shape[:2], -1, size) for part in torch.split(qkv, widths, dim=-1)]
    q, k, v = (part.transpose(1, 2) for part in parts)
    return q, k, v


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first features of (..., length, size) by tables (length, rotated features)."""
    rotated, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = rotated.chunk(2, dim=-1)
    rotated = rotated * cos + torch.cat((-second, first), dim=-1) * sin
    return rotated if rest.shape[-1] == 0 else torch.cat((rotated, rest), dim=-1)


def _places(heads: int, kv_heads: int, size: int) -> tuple[tuple[int, int], ...]:
    """Return of q, k and v the first column in the order of `split_heads`, and the columns from head to head."""
    if heads == kv_heads:
        return (0, 3 * size), (size, 3 * size), (2 * size, 3 * size)
    return (0, size), (heads * size, size), ((heads + kv_heads) * size, size)


@torch.library.custom_op(
    "neoxlite::qkv_backward",
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor cos, Tensor sin, bool peak) -> (Tensor, Tensor, Tensor)",
)
def _qkv_backward(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, peak: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient of the unrotated features (rows, width), its sum over rows, with ``peak`` its largest value.

    The arguments are gradients as `qkv_rotary` returns the tensors.
    """
    places = _places(q.shape[1], k.shape[1], q.shape[3])
    if q.is_cuda:
        from neoxlite.model.triton_backward import qkv_backward

        return qkv_backward((q, k, v), cos, sin, places, peak)
    batch, _, length, size = q.shape
    exact = torch.empty(batch, length, (q.shape[1] + 2 * k.shape[1]) * size)
    wide_cos, wide_sin = cos.float(), sin.float()
    for grad, rotated, (first, step) in zip((q, k, v), (True, True, False), places, strict=True):
        back = grad.float()
        if rotated:
            back = rotate(back, wide_cos, -wide_sin)
        columns = torch.arange(grad.shape[1]).mul_(step).add_(first).unsqueeze(1) + torch.arange(size)
        exact[..., columns.view(-1)] = back.transpose(1, 2).flatten(2)
    flat = exact.view(batch * length, -1)
    return flat.to(q.dtype), flat.sum(0).to(q.dtype), flat.abs().amax()


@_qkv_backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, peak: bool) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, length, size = q.shape
    width = (heads + 2 * k.shape[1]) * size
    return q.new_empty(batch * length, width), q.new_empty(width), q.new_empty((), dtype=torch.float32)
