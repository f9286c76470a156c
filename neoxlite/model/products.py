"""The matrix products of a linear layer, forward and backward, in the tensors' own dtype or in fp8."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from neoxlite.model import fp8 as _fp8
from neoxlite.parallel.collectives import summed_products


def forward_product(x: Tensor, weight: Tensor, bias: Tensor | None, *, fp8: str | None) -> tuple[Tensor, ...]:
    """Return x @ weight.T + bias, (rows, in) -> (rows, out), and what `backward_product` needs.

    Args:
        fp8: name of the recipe by which it is in fp8.
    """
    if fp8 is not None:
        return _fp8.forward_product(x, weight, bias, fp8)
    return F.linear(x, weight, bias), x, weight


def backward_product(
    grad: Tensor, kept: Sequence[Tensor], largest: Tensor | None, *, fp8: str | None, group: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and weight from that of the output, (rows, out).

    Args:
        kept: what `forward_product` returned behind the output.
        largest: the largest absolute value of ``grad``, if it is known.
        group: name of the tensor-parallel group over which the gradient of x is summed.
    """
    if fp8 is not None:
        return _fp8.backward_product(grad, kept, largest, fp8)
    x, weight = kept
    if group is not None:
        return summed_products(grad, x, weight, group)
    return grad @ weight, grad.t() @ x
