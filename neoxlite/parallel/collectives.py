"""The two conjugate operators of Megatron-style tensor parallelism (Shoeybi et al. 2019, section 3, "f" and "g")."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

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


def copy_to_tensor_parallel(x: Tensor, topology: Topology) -> Tensor:
    """Give ``x`` to all tensor-parallel ranks; its gradient is the sum of theirs."""
    group = topology.group("tensor")
    if group is None:
        return x
    copied: Tensor = _Copy.apply(x, group)  # type: ignore[no-untyped-call]
    return copied


def reduce_from_tensor_parallel(x: Tensor, topology: Topology) -> Tensor:
    """Sum ``x`` over the tensor-parallel ranks; each receives the gradient unchanged."""
    group = topology.group("tensor")
    if group is None:
        return x
    reduced: Tensor = _Reduce.apply(x, group)  # type: ignore[no-untyped-call]
    return reduced
