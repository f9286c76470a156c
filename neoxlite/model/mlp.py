"""The feed-forward half of a block."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
        hidden, inner, bias = spec.hidden_size, spec.mlp_hidden_size, spec.bias_in_mlp
        parts = (inner, inner) if self.gated else (inner,)
        self.linear1 = ColumnParallelLinear(
            hidden, sum(parts), bias=bias, topology=topology, what="MLP width", parts=parts
        )
        self.linear2 = RowParallelLinear(inner, hidden, bias=bias, topology=topology, what="MLP width")

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, length, hidden)."""
        x = self.linear1(x)
        if self.gated:
            value, gate = x.chunk(2, dim=-1)
            x = self.activation(gate) * value
        else:
            x = self.activation(x)
        out: Tensor = self.linear2(x)
        return out
