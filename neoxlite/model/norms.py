"""Normalisation layers, with GPT-NeoX's parameter names."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.model.spec import ModelSpec


class LayerNorm(nn.Module):
    """Layer normalisation over the last dimension (Ba et al. 2016); parameters ``weight`` and, if asked, ``bias``."""

    def __init__(self, size: int, epsilon: float, *, bias: bool):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., size) -> (..., size)."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation (Zhang and Sennrich 2019), computed in fp32; parameter ``scale``."""

    def __init__(self, size: int, epsilon: float):
        super().__init__()
        self.epsilon = epsilon
        self.scale = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        """(..., size) -> (..., size)."""
        return F.rms_norm(x, self.scale.shape, self.scale, self.epsilon)


def build_norm(spec: ModelSpec) -> LayerNorm | RMSNorm:
    """Return an uninitialised norm of the model's kind."""
    if spec.norm == "rmsnorm":
        return RMSNorm(spec.hidden_size, spec.norm_epsilon)
    return LayerNorm(spec.hidden_size, spec.norm_epsilon, bias=spec.bias_in_norms)
