"""Linear layers whose matrix is sliced over the tensor-parallel ranks.

A parameter that is a slice carries ``partition_dim`` (the sliced dimension) and ``full_shape``, so that initialisation
and checkpoints see the whole matrix whatever the layout. A parameter without them is the same on every rank.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.errors import ConfigError
from neoxlite.parallel.collectives import copy_to_tensor_parallel, reduce_from_tensor_parallel
from neoxlite.parallel.topology import Topology


def sliced_parameter(full_shape: tuple[int, ...], dim: int, topology: Topology, what: str) -> nn.Parameter:
    """Return this rank's uninitialised slice along ``dim`` of a parameter of ``full_shape``."""
    size = topology.tensor_size
    if full_shape[dim] % size:
        raise ConfigError(
            f"{what}: {full_shape[dim]} rows or columns cannot be sliced over model_parallel_size {size}",
            hint="choose a model_parallel_size that divides it",
        )
    shape = list(full_shape)
    shape[dim] //= size
    parameter = nn.Parameter(torch.empty(shape))
    if size > 1:
        parameter.partition_dim = dim  # type: ignore[attr-defined]
        parameter.full_shape = full_shape  # type: ignore[attr-defined]
        parameter.model_parallel = True  # type: ignore[attr-defined] # DeepSpeed's norm counts it on every rank
    return parameter


class ColumnParallelLinear(nn.Module):
    """``x @ W.T + b`` with the rows of W (output features) sliced: (..., in) -> (..., out / tp)."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool, topology: Topology, what: str):
        super().__init__()
        self.topology = topology
        self.weight = sliced_parameter((out_features, in_features), 0, topology, what)
        self.bias = sliced_parameter((out_features,), 0, topology, what) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return this rank's output features."""
        return F.linear(copy_to_tensor_parallel(x, self.topology), self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """``x @ W.T + b`` with the columns of W (input features) sliced: (..., in / tp) -> (..., out)."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool, topology: Topology, what: str):
        super().__init__()
        self.topology = topology
        self.weight = sliced_parameter((out_features, in_features), 1, topology, what)
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return all output features on every rank."""
        if self.topology.tensor_size == 1:
            return F.linear(x, self.weight, self.bias)
        out = reduce_from_tensor_parallel(F.linear(x, self.weight), self.topology)
        return out if self.bias is None else out + self.bias
