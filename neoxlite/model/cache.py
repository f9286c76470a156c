"""Keys and values of past tokens, kept so that generation costs one token's work per token."""

from __future__ import annotations

import torch
from torch import Tensor

from neoxlite.model.spec import ModelSpec


class KeyValueCache:
    """Room for ``capacity`` positions of every block; shape of each tensor (batch, kv_heads, capacity, head_size)."""

    def __init__(self, spec: ModelSpec, batch: int, capacity: int, device: torch.device, dtype: torch.dtype):
        shape = (batch, spec.num_kv_heads, capacity, spec.head_size)
        self._keys = [torch.empty(shape, device=device, dtype=dtype) for _ in range(spec.num_layers)]
        self._values = [torch.empty(shape, device=device, dtype=dtype) for _ in range(spec.num_layers)]
        self.capacity = capacity
        self.length = 0

    def append(self, block: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store a block's new keys and values behind `length` and return all of them up to the new end."""
        end = self.length + keys.shape[2]
        self._keys[block][:, :, self.length : end] = keys
        self._values[block][:, :, self.length : end] = values
        return self._keys[block][:, :, :end], self._values[block][:, :, :end]

    def advance(self, tokens: int) -> None:
        """Count ``tokens`` positions as past, after all blocks have appended them."""
        self.length += tokens
