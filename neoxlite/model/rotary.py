"""Rotary position embedding (Su et al. 2021) in GPT-NeoX's form: halves of the rotated features are paired."""

from __future__ import annotations

import torch
from torch import Tensor

from neoxlite.model.fused import rotate
from neoxlite.model.position_tables import PositionTables


class Rotary:
    """Rotates the first ``size`` features of queries and keys by their position.

    The tables are computed in fp32 and then cast to the activations' dtype, as GPT-NeoX does
    (megatron/model/positional_embeddings.py).
    """

    def __init__(self, size: int, base: float):
        self.size = size
        self.base = base
        self._tables = PositionTables(self._make)

    def tables(self, length: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin of shape (length, size) for positions 0 ... length - 1."""
        cos, sin = self._tables.get(length, device, dtype)
        return cos[:length], sin[:length]

    def _make(self, length: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        exponents = torch.arange(0, self.size, 2, dtype=torch.float32, device=device) / self.size
        positions = torch.arange(length, dtype=torch.float32, device=device)
        angles = torch.outer(positions, self.base**-exponents)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def rotate(self, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Rotate (batch, heads, length, head_size) tensors whose first position is ``start``."""
        length = start + q.shape[-2]
        cos, sin = self.tables(length, q.device, q.dtype)
        cos, sin = cos[start:], sin[start:]
        return rotate(q, cos, sin), rotate(k, cos, sin)
