"""What stands before and behind the sliced matrices of Megatron-style tensor parallelism.

Without sequence parallelism these are the operators "f" and "g" of Shoeybi et al. 2019, section 3: the activations
between matrices are whole on every rank. With it (Korthikanti et al. 2022, section 4.2.2) each rank has its part of the
sequence there, and they are all-gather and reduce-scatter along the sequence, dimension 1.

The collectives are torch's functional ones, which know their group by its name: a compiled graph can have them inside.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.parallel.slicing import slicing_of
from neoxlite.parallel.topology import Topology

_ops = torch.ops._c10d_functional


class _Copy(torch.autograd.Function):
    """Identity forward, sum over the tensor-parallel group backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return finished(start_sum(grad, ctx.group)), None


class _ColumnProduct(torch.autograd.Function):
    """``x @ W.T + b`` with ``x`` whole on all ranks, W this rank's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, group: str) -> Tensor:
        ctx.group = group
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        grad_x, grad_weight = summed_products(rows, x.reshape(-1, x.shape[-1]), weight, ctx.group)
        return grad_x.view(x.shape), grad_weight, rows.sum(dim=0) if ctx.has_bias else None, None


class _Reduce(torch.autograd.Function):
    """Sum over the tensor-parallel group forward, identity backward: stands behind a row-parallel matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str) -> Tensor:
        return finished(start_sum(x, group))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _Scatter(torch.autograd.Function):
    """Sum over the group forward, of which each rank keeps its part of the sequence; the parts together backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str, ranks: int) -> Tensor:
        ctx.group, ctx.ranks = group, ranks
        return finished(_start_scatter(x, group, ranks))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return gather_parts(grad, ctx.group, ctx.ranks), None, None


class _Gather(torch.autograd.Function):
    """The parts of a sequence together forward; backward the sum over the group, of which each rank keeps its part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str, ranks: int) -> Tensor:
        ctx.group, ctx.ranks = group, ranks
        return gather_parts(x, group, ranks)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return finished(_start_scatter(grad, ctx.group, ctx.ranks)), None, None


class _GatheredProduct(torch.autograd.Function):
    """``x @ W.T + b`` of the parts of ``x`` together; keeps this rank's part only, and gathers again backward.

    In a compiled graph both are one gathering, whose result is kept: more memory, and a collective less.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, group: str, ranks: int) -> Tensor:
        ctx.group, ctx.ranks = group, ranks
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return F.linear(gather_parts(x, group, ranks), weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        gathering = start_gather(x, ctx.ranks, ctx.group)
        scattering = _start_scatter(grad @ weight, ctx.group, ctx.ranks)
        rows = grad.reshape(-1, grad.shape[-1])
        grad_weight = rows.t() @ _joined(finished(gathering), x, ctx.ranks).reshape(-1, x.shape[-1])
        grad_bias = rows.sum(dim=0) if ctx.has_bias else None
        return finished(scattering), grad_weight, grad_bias, None, None


def start_sum(x: Tensor, group: str) -> Tensor:
    """Begin to sum ``x`` over the group of this name; `finished` returns the sum, and other work may come between."""
    started: Tensor = _ops.all_reduce(x.contiguous(), "sum", group)
    return started


def finished(started: Tensor) -> Tensor:
    """Return what a collective that was begun gives."""
    result: Tensor = _ops.wait_tensor(started)
    return result


def summed_products(grad: Tensor, x: Tensor, weight: Tensor, group: str) -> tuple[Tensor, Tensor]:
    """Return the gradients of x, summed over the group, and weight; the sum travels while the other is computed."""
    summing = start_sum(grad @ weight, group)
    grad_weight = grad.t() @ x
    return finished(summing), grad_weight


def start_gather(x: Tensor, ranks: int, group: str) -> Tensor:
    """Begin to gather the group's tensors like ``x``, one behind the other along the first dimension."""
    started: Tensor = _ops.all_gather_into_tensor(x.contiguous(), ranks, group)
    return started


def _joined(parts: Tensor, x: Tensor, ranks: int) -> Tensor:
    """Return (batch, length, ...) from all ranks' parts, one behind the other, that are like ``x``."""
    return parts.view(ranks, *x.shape).transpose(0, 1).reshape(x.shape[0], ranks * x.shape[1], *x.shape[2:])


def gather_parts(x: Tensor, group: str, ranks: int) -> Tensor:
    """Return (batch, length, ...) from the parts (batch, length / ranks, ...) of all ranks, in their order."""
    return _joined(finished(start_gather(x, ranks, group)), x, ranks)


def _start_scatter(x: Tensor, group: str, ranks: int) -> Tensor:
    """Begin to sum (batch, length, ...) over all ranks, of which each receives its part of the length."""
    parts = x.reshape(x.shape[0], ranks, x.shape[1] // ranks, *x.shape[2:]).transpose(0, 1).contiguous()
    started: Tensor = _ops.reduce_scatter_tensor(parts.flatten(0, 1), "sum", ranks, group)
    return started


def whole_sequence(x: Tensor, topology: Topology) -> Tensor:
    """Give ``x`` over the whole sequence to all tensor-parallel ranks; its gradient is the sum of theirs."""
    group = topology.group_name("tensor")
    if group is None:
        return x
    whole: Tensor
    if topology.sequence_parallel:
        whole = _Gather.apply(x, group, topology.tensor_size)  # type: ignore[no-untyped-call]
    else:
        whole = _Copy.apply(x, group)  # type: ignore[no-untyped-call]
    return whole


def column_product(x: Tensor, weight: Tensor, bias: Tensor | None, topology: Topology) -> Tensor:
    """Return ``x @ W.T + b`` over the whole sequence, W this rank's rows; (batch, length, in) -> (..., out / tp)."""
    group = topology.group_name("tensor")
    product: Tensor
    if group is None:
        product = F.linear(x, weight, bias)
    elif topology.sequence_parallel:
        product = _GatheredProduct.apply(x, weight, bias, group, topology.tensor_size)  # type: ignore[no-untyped-call]
    else:
        product = _ColumnProduct.apply(x, weight, bias, group)  # type: ignore[no-untyped-call]
    return product


def reduce_from_tensor_parallel(x: Tensor, topology: Topology) -> Tensor:
    """Sum ``x`` over the tensor-parallel ranks; with sequence parallelism each keeps its part of the sequence."""
    group = topology.group_name("tensor")
    if group is None:
        return x
    reduced: Tensor
    if topology.sequence_parallel:
        reduced = _Scatter.apply(x, group, topology.tensor_size)  # type: ignore[no-untyped-call]
    else:
        reduced = _Reduce.apply(x, group)  # type: ignore[no-untyped-call]
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
