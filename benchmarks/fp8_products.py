"""The products of a linear layer with operands that are really cast, emulated on a CPU, and ways of casting them.

Sums are in fp32, and where a recipe says so by steps of 32 into an accumulator of 13 fraction bits that truncates: so a
Hopper GPU adds fp8 with ``use_fast_accum`` (DeepSeek-V3, arXiv 2412.19437, 3.5.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from neoxlite.model.layers import Block

BF16, E4M3, E5M2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2


@dataclass(frozen=True)
class Operand:
    """How one side of a product is cast: its dtype, and what shares a scale: a tensor, a row, or a block."""

    dtype: torch.dtype
    shares: str = "tensor"

    def cast(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """Cast (rows, inner), and return the values and their factors; a ``square`` is a block of 128 rows.

        Values of fp8 are in bf16, which holds them exactly and multiplies fast, unless the factors differ in a row.
        """
        if self.dtype in (torch.float32, BF16):
            return x.to(self.dtype), 1.0
        x = x.to(BF16).float()
        factor = _largest(x, self.shares).clamp(min=1e-30) / torch.finfo(self.dtype).max
        values = (x / factor).to(self.dtype)
        return (values.to(BF16), factor) if self.shares in ("tensor", "row") else (values.float() * factor, 1.0)


def _largest(x: Tensor, shares: str) -> Tensor:
    """The largest absolute value of what shares a scale, in a shape that x can be divided by."""
    if shares == "tensor":
        return x.abs().amax()
    if shares == "row":
        return x.abs().amax(-1, keepdim=True)
    rows = 128 if shares == "square" else 1
    padded = nn.functional.pad(x.abs(), (0, -x.shape[1] % 128, 0, -x.shape[0] % rows))
    tiles = padded.view(padded.shape[0] // rows, rows, padded.shape[1] // 128, 128).amax((1, 3))
    return tiles.repeat_interleave(rows, 0).repeat_interleave(128, 1)[: x.shape[0], : x.shape[1]]


@dataclass(frozen=True)
class Recipe:
    """The operands of the three products of a linear layer: forward, gradient of x, gradient of the weight."""

    x: Operand
    w: Operand
    g: Operand
    w_back: Operand
    g_weight: Operand
    x_weight: Operand
    fast: bool = False
    """The forward product adds in the tensor cores' accumulator."""
    first: int = 0
    """So many of the first blocks stay in bf16."""
    last: int = 0
    """So many of the last."""


def _alike(x: Operand, w: Operand, g: Operand, **more: Any) -> Recipe:
    return Recipe(x, w, g, w, g, x, **more)


def all_recipes() -> dict[str, Recipe]:
    """Return the ways by name; the trainer has two of them (`neoxlite.model.fp8.RECIPES`)."""
    high, a4, a5 = Operand(BF16), Operand(E4M3), Operand(E5M2)
    row4, row5 = Operand(E4M3, "row"), Operand(E5M2, "row")
    block, square = Operand(E4M3, "block"), Operand(E4M3, "square")
    bf16 = _alike(high, high, high)
    tensor = _alike(a4, a4, a5, fast=True)
    exact = replace(tensor, fast=False)
    e4m3 = replace(exact, g=a4, g_weight=a4)
    weight: dict[str, Any] = {"g_weight": high, "x_weight": high}
    rows = _alike(row4, row4, row4)
    return {
        "fp32": _alike(*[Operand(torch.float32)] * 3),
        "bf16": bf16,
        "tensor, fast sums": tensor,
        "tensor": exact,
        "tensor, e4m3 gradients": e4m3,
        "tensor, weight gradients in bf16": replace(exact, **weight),
        "tensor, e4m3, weight gradients in bf16": replace(e4m3, **weight),
        "rows, e5m2 gradients": _alike(row4, row4, row5),
        "rows": rows,
        "rows, weight gradients in bf16": replace(rows, **weight),
        "blocks of 128": Recipe(block, square, block, square, block, block),
        "tensor, first and last block in bf16": replace(exact, first=1, last=1),
        "tensor, e4m3, first and last block in bf16": replace(e4m3, first=1, last=1),
        "tensor, e4m3, first block in bf16": replace(e4m3, first=1),
        "tensor, e4m3, last block in bf16": replace(e4m3, last=1),
        "tensor, e4m3, two first blocks in bf16": replace(e4m3, first=2),
        "tensor, e4m3, four first blocks in bf16": replace(e4m3, first=4),
        "rows, first and last block in bf16": replace(rows, first=1, last=1),
        "forward in bf16": replace(bf16, g=a4, w_back=a4, g_weight=a4, x_weight=a4),
        "backward in bf16": replace(bf16, x=a4, w=a4),
    }


def multiply(a: Tensor, b: Tensor, of_a: Operand, of_b: Operand, *, fast: bool = False) -> Tensor:
    """Return a @ b.T of fp32 matrices (rows, inner) and (columns, inner), each cast first; in fp32."""
    (a, a_factor), (b, b_factor) = of_a.cast(a), of_b.cast(b)
    out = truncated_product(a.float(), b.float()) if fast else (a @ b.t()).float()
    factor = a_factor * (b_factor.t() if isinstance(b_factor, Tensor) and b_factor.dim() else b_factor)
    return out * factor


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor, recipe: Recipe) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.recipe = recipe
        return _rounded(multiply(x, w, recipe.x, recipe.w, fast=recipe.fast) + bias, recipe)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        recipe = ctx.recipe
        grad_x = multiply(grad, w.t(), recipe.g, recipe.w_back)
        grad_w = multiply(grad.t(), x.t(), recipe.g_weight, recipe.x_weight)
        return _rounded(grad_x, recipe), _rounded(grad_w, recipe), grad.sum(0), None


def _rounded(x: Tensor, recipe: Recipe) -> Tensor:
    return x if recipe.x.dtype is torch.float32 else x.to(BF16).float()


def truncated_product(a: Tensor, b: Tensor, step: int = 32) -> Tensor:
    """Return a @ b.T by steps of the inner dimension into an accumulator that keeps 13 fraction bits."""
    total = a.new_zeros(a.shape[0], b.shape[0])
    for first in range(0, a.shape[1], step):
        total = total + a[:, first : first + step] @ b[:, first : first + step].t()
        total = (total.view(torch.int32) & ~0x3FF).view(torch.float32)
    return total


def product_of(recipe: Recipe) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """Return what computes ``x @ w.T + bias`` for `neoxlite.parallel.linear`."""

    def product(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        out: Tensor = _Product.apply(x.reshape(-1, x.shape[-1]), w, bias, recipe)  # type: ignore[no-untyped-call]
        return out.view(*x.shape[:-1], -1)

    return product


def linears(model: nn.Module) -> Iterator[tuple[str, Any, int, int]]:
    """Yield the matrices of the blocks: a name, the layer, how many blocks stand before its own, and how many after."""
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for number, block in enumerate(blocks):
        layers = {
            "query_key_value": block.attention.query_key_value,
            "dense": block.attention.dense,
            "linear1": block.mlp.linear1,
            "linear2": block.mlp.linear2,
        }
        for kind, layer in layers.items():
            yield kind, layer, number, len(blocks) - 1 - number


def use(model: nn.Module, recipe: Recipe) -> None:
    """Have the blocks of a model compute by a recipe."""
    for _, layer, before, after in linears(model):
        outer = before < recipe.first or after < recipe.last
        layer.product = product_of(all_recipes()["bf16"] if outer else recipe)
