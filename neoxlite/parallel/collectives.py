"""What stands before and behind the sliced matrices of Megatron-style tensor parallelism.

Without sequence parallelism these are the operators "f" and "g" of Shoeybi et al. 2019, section 3: the activations
between matrices are whole on every rank. With it (Korthikanti et al. 2022, section 4.2.2) each rank has its part of the
sequence there, and they are all-gather and reduce-scatter along the sequence, dimension 1.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.parallel.slicing import slicing_of
from neoxlite.parallel.topology import Topology


class _Copy(torch.autograd.Function):
    """Identity forward, sum over the tensor-parallel group backward: stands before a column-parallel matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _Reduce(torch.autograd.Function):
    """Sum over the tensor-parallel group forward, identity backward: stands behind a row-parallel matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _Scatter(torch.autograd.Function):
    """Sum over the group forward, of which each rank keeps its part of the sequence; the parts together backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _sum_and_part(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return gather_parts(grad, ctx.group), None


class _GatheredProduct(torch.autograd.Function):
    """``x @ W.T + b`` of the parts of ``x`` together; keeps this rank's part only, and gathers again backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return F.linear(gather_parts(x, group), weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        grad_x = _sum_and_part(grad @ weight, ctx.group)
        rows = grad.reshape(-1, grad.shape[-1])
        grad_weight = rows.t() @ gather_parts(x, ctx.group).reshape(-1, x.shape[-1])
        return grad_x, grad_weight, rows.sum(dim=0) if ctx.has_bias else None, None


def gather_parts(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return (batch, length, ...) from the parts (batch, length / ranks, ...) of all ranks, in their order."""
    ranks = dist.get_world_size(group)
    parts = torch.empty((ranks, *x.shape), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(parts.flatten(0, 1), x.contiguous(), group=group)
    return parts.transpose(0, 1).reshape(x.shape[0], ranks * x.shape[1], *x.shape[2:])


def _sum_and_part(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return this rank's part (batch, length / ranks, ...) of the sum of all ranks' (batch, length, ...)."""
    ranks = dist.get_world_size(group)
    parts = x.reshape(x.shape[0], ranks, x.shape[1] // ranks, *x.shape[2:]).transpose(0, 1).contiguous()
    mine = torch.empty(parts.shape[1:], dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(mine, parts.flatten(0, 1), group=group)
    return mine


def copy_to_tensor_parallel(x: Tensor, topology: Topology) -> Tensor:
    """Give ``x``, which is whole, to all tensor-parallel ranks; its gradient is the sum of theirs."""
    group = topology.group("tensor")
    if group is None:
        return x
    copied: Tensor = _Copy.apply(x, group)  # type: ignore[no-untyped-call]
    return copied


def column_product(x: Tensor, weight: Tensor, bias: Tensor | None, topology: Topology) -> Tensor:
    """Return ``x @ W.T + b`` over the whole sequence, W this rank's rows; (batch, length, in) -> (..., out / tp)."""
    if not topology.sequence_parallel:
        return F.linear(copy_to_tensor_parallel(x, topology), weight, bias)
    product: Tensor = _GatheredProduct.apply(x, weight, bias, topology.group("tensor"))  # type: ignore[no-untyped-call]
    return product


def reduce_from_tensor_parallel(x: Tensor, topology: Topology) -> Tensor:
    """Sum ``x`` over the tensor-parallel ranks; with sequence parallelism each keeps its part of the sequence."""
    group = topology.group("tensor")
    if group is None:
        return x
    kind = _Scatter if topology.sequence_parallel else _Reduce
    reduced: Tensor = kind.apply(x, group)  # type: ignore[no-untyped-call]
    return reduced


def sum_gradients_of_parts(module: nn.Module, topology: Topology) -> None:
    """With sequence parallelism, have whole parameters (norms, biases, positions) sum their gradient over the ranks.

    Each rank computes with them on its part of the sequence, so that its gradient is a part of theirs. It is summed
    where it arises, before anything of the engine sees it.
    """
    group = topology.group("tensor")
    if not topology.sequence_parallel or group is None:
        return

    def summed(grad: Tensor) -> Tensor:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=group)
        return grad

    for parameter in module.parameters():
        if slicing_of(parameter) is None:
            parameter.register_hook(summed)  # type: ignore[no-untyped-call]
