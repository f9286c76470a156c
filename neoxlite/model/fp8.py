"""Matrix products in fp8 with one scale a tensor, found each time, by one of two recipes.

The scale maps a tensor's largest absolute value to that of the format (Micikevicius et al. 2022). A product on the
tensor cores takes both operands with the summed dimension contiguous, so a tensor that is used in two products is cast
and transposed in one pass. Activations and weights are in e4m3; results are in the tensors' own dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ACTIVATIONS = torch.float8_e4m3fn
MULTIPLE = 16
"""All dimensions of a product must be multiples of this many elements."""


@dataclass(frozen=True)
class Recipe:
    """What is given up for speed."""

    gradients: torch.dtype
    fast_sums: bool
    """On a Hopper GPU the forward products' sums have 13 fraction bits instead of fp32's."""
    spares: bool
    """The first sixth of the blocks is not in fp8: all that follow would inherit their errors."""

    def first_block(self, blocks: int) -> int:
        """Return the number of the first of ``blocks`` that is in fp8."""
        return max(1, blocks // 6) if self.spares else 0


RECIPES = {
    "careful": Recipe(torch.float8_e4m3fn, fast_sums=False, spares=True),
    "fastest": Recipe(torch.float8_e5m2, fast_sums=True, spares=False),
}
"""By the words of `kernels.fp8_recipe`; compiled functions take the word, which is a constant to the compiler."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, recipe: str) -> Tensor:
    """Return x @ weight.T + bias like `torch.nn.functional.linear`, by products in fp8: (..., in) -> (..., out)."""
    out: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias, recipe)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, recipe: str) -> Tensor:
        out, *kept = forward_product(x, weight, bias, recipe)
        ctx.save_for_backward(*kept)
        ctx.biased, ctx.recipe = bias is not None, recipe
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, grad_weight = backward_product(grad.contiguous(), ctx.saved_tensors, None, ctx.recipe)
        return grad_x, grad_weight, grad.sum(0) if ctx.biased else None, None


def forward_product(x: Tensor, weight: Tensor, bias: Tensor | None, recipe: str) -> tuple[Tensor, ...]:
    """See `neoxlite.model.products`; kept are x and weight transposed, and the factors that undo their scales."""
    x8, x8_t, x_factor = quantize(x, ACTIVATIONS)
    w8, w8_t, w_factor = quantize(weight, ACTIVATIONS)
    out = _product(x8, w8, x_factor, w_factor, x.dtype, bias, fast=RECIPES[recipe].fast_sums)
    return out, x8_t, x_factor, w8_t, w_factor


def backward_product(
    grad: Tensor, kept: Sequence[Tensor], largest: Tensor | None, recipe: str
) -> tuple[Tensor, Tensor]:
    """See `neoxlite.model.products`; ``recipe`` is that of `forward_product`."""
    x8_t, x_factor, w8_t, w_factor = kept
    g8, g8_t, g_factor = quantize(grad, RECIPES[recipe].gradients, largest)
    grad_x = _product(g8, w8_t, g_factor, w_factor, grad.dtype)
    grad_weight = _product(g8_t, x8_t, g_factor, x_factor, grad.dtype)
    return grad_x, grad_weight


def quantize(x: Tensor, dtype: torch.dtype, largest: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return x (rows, columns) in fp8, the same transposed, both contiguous, and the fp32 factor that undoes the scale.

    Args:
        largest: the largest absolute value of ``x`` (fp32 scalar), if it is known.
    """
    if largest is None:
        largest = x.abs().amax(dim=-1).amax().float()  # by rows first: the compiler joins it to what makes x
    factor = largest.clamp(min=1e-12) / torch.finfo(dtype).max
    cast, transposed = torch.ops.neoxlite.cast_and_transpose(x, factor, dtype)
    return cast, transposed, factor


def _product(
    a: Tensor,
    b: Tensor,
    a_factor: Tensor,
    b_factor: Tensor,
    dtype: torch.dtype,
    bias: Tensor | None = None,
    *,
    fast: bool = False,
) -> Tensor:
    """Return a @ b.T of fp8 tensors (rows, inner) and (columns, inner), scaled back, and with the bias."""
    if a.is_cuda:
        return torch._scaled_mm(
            a, b.t(), scale_a=a_factor, scale_b=b_factor, bias=bias, out_dtype=dtype, use_fast_accum=fast
        )
    out = (a.float() @ b.float().t()) * (a_factor * b_factor)
    out = out if bias is None else out + bias.float()
    # torch 2.11 compiles a function that returns a cast to the dtype it has already into one without gradients.
    return out if out.dtype is dtype else out.to(dtype)


@torch.library.custom_op(
    "neoxlite::cast_and_transpose",
    mutates_args=(),
    schema="(Tensor x, Tensor factor, ScalarType dtype) -> (Tensor, Tensor)",
)
def _cast_and_transpose(x: Tensor, factor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return x / factor in fp8, (rows, columns), and its transpose, both contiguous."""
    if x.is_cuda:
        from neoxlite.model.triton_fp8 import cast_and_transpose

        return cast_and_transpose(x, factor, dtype)
    limit = torch.finfo(dtype).max
    cast = (x.float() / factor).clamp(-limit, limit).to(dtype)
    return cast, cast.t().contiguous()


@_cast_and_transpose.register_fake
def _(x: Tensor, factor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape[::-1], dtype=dtype)
