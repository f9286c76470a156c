"""Linear layers whose matrix is sliced over the tensor-parallel ranks (Shoeybi et al. 2019, section 3)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.parallel.collectives import column_product, reduce_from_tensor_parallel
from neoxlite.parallel.slicing import sliced_parameter
from neoxlite.parallel.topology import Topology


class ColumnParallelLinear(nn.Module):
    """``x @ W.T + b`` with the rows of W (output features) sliced: (..., in) -> (..., out / tp).

    Args:
        parts: lengths of the groups of output features that are each sliced by themselves; None for one group.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool,
        topology: Topology,
        what: str,
        parts: tuple[int, ...] | None = None,
    ):
        super().__init__()
        self.topology = topology
        self.product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = F.linear
        """Computes ``x @ W.T + b``."""
        self.weight = sliced_parameter((out_features, in_features), 0, topology, what, parts)
        self.bias = sliced_parameter((out_features,), 0, topology, what, parts) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return this rank's output features."""
        if self.topology.tensor_size == 1:
            return self.product(x, self.weight, self.bias)
        return column_product(x, self.weight, self.bias, self.topology)


class RowParallelLinear(nn.Module):
    """``x @ W.T + b`` with the columns of W (input features) sliced: (..., in / tp) -> (..., out)."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool, topology: Topology, what: str):
        super().__init__()
        self.topology = topology
        self.product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = F.linear
        """Computes ``x @ W.T + b``."""
        self.weight = sliced_parameter((out_features, in_features), 1, topology, what)
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return all output features on every rank; with sequence parallelism, of its part of the sequence."""
        if self.topology.tensor_size == 1:
            return self.product(x, self.weight, self.bias)
        out = reduce_from_tensor_parallel(self.product(x, self.weight, None), self.topology)
        return out if self.bias is None else out + self.bias
