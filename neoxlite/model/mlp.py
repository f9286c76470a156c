"""The feed-forward half of a block."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.model.fused import linear_gelu
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.linear import ColumnParallelLinear, RowParallelLinear
from neoxlite.parallel.topology import Topology

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "softsign": F.softsign,
    "swish": F.silu,
    "silu": F.silu,
    "mish": F.mish,
    "geglu": F.gelu,
    "reglu": F.relu,
    "swiglu": F.silu,
    "glu": torch.sigmoid,
    "bilinear": lambda x: x,
}


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


class MLP(nn.Module):
    """Two matrices with an activation between them: plain, or gated as ``act(gate) * value``.

    The first matrix of a gated MLP yields the value in its first half and the gate in its second (GPT-NeoX's order).
    """

    def __init__(self, spec: ModelSpec, topology: Topology):
        super().__init__()
        self.gated = spec.gated_mlp
        self.activation = _gelu_tanh if spec.activation == "gelu" and spec.gelu_tanh else _FUNCTIONS[spec.activation]
        self.gelu_tanh = spec.gelu_tanh
        self.fused_gelu = False
        """Whether the first matrix and GELU are one function (`neoxlite.model.fused`)."""
        self.fp8: str | None = None
        """The recipe by which that function's products are in fp8 (`neoxlite.model.fp8`)."""
        hidden, inner, bias = spec.hidden_size, spec.mlp_hidden_size, spec.bias_in_mlp
        parts = (inner, inner) if self.gated else (inner,)
        self.linear1 = ColumnParallelLinear(
            hidden, sum(parts), bias=bias, topology=topology, what="MLP width", parts=parts
        )
        self.linear2 = RowParallelLinear(inner, hidden, bias=bias, topology=topology, what="MLP width")

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, length, hidden)."""
        if self.fused_gelu:
            first = self.linear1
            group = first.topology.group_name("tensor")
            x = linear_gelu(x, first.weight, first.bias, tanh=self.gelu_tanh, fp8=self.fp8, group=group)
        else:
            x = self._activated(self.linear1(x))
        out: Tensor = self.linear2(x)
        return out

    def _activated(self, x: Tensor) -> Tensor:
        if not self.gated:
            return self.activation(x)
        value, gate = x.chunk(2, dim=-1)
        return self.activation(gate) * value
