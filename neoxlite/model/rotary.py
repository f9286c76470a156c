"""Rotary position embedding (Su et al. 2021) in GPT-NeoX's form: halves of the rotated features are paired."""

from __future__ import annotations

import torch
from torch import Tensor

from neoxlite.model.fused import rotate


class Rotary:
    """Rotates the first ``size`` features of queries and keys by their position.

    The tables are computed in fp32 and then cast to the activations' dtype, as GPT-NeoX does
    (megatron/model/positional_embeddings.py). They are no buffers: a cast of the module would round the frequencies.
    """

    def __init__(self, size: int, base: float):
        self.size = size
        self.base = base
        self._tables: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def tables(self, length: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin of shape (length, size) for positions 0 ... length - 1."""
        cached = self._tables.get((device, dtype))
        if cached is None or cached[0].shape[0] < length:
            exponents = torch.arange(0, self.size, 2, dtype=torch.float32, device=device) / self.size
            positions = torch.arange(length, dtype=torch.float32, device=device)
            angles = torch.outer(positions, self.base**-exponents)
            angles = torch.cat((angles, angles), dim=-1)
            cached = (angles.cos().to(dtype), angles.sin().to(dtype))
            if device.type != "meta":
                self._tables[device, dtype] = cached
        return cached[0][:length], cached[1][:length]

    def rotate(self, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Rotate (batch, heads, length, head_size) tensors whose first position is ``start``."""
        length = start + q.shape[-2]
        cos, sin = self.tables(length, q.device, q.dtype)
        cos, sin = cos[start:], sin[start:]
        return rotate(q, cos, sin), rotate(k, cos, sin)
