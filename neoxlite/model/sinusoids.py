"""Sinusoidal positions (Vaswani et al. 2017) in GPT-NeoX's form: all sines, then all cosines; nothing is learned."""

from __future__ import annotations

import torch
from torch import Tensor

_BASE = 10000.0


class Sinusoids:
    """A table of (positions, ``size``), computed in fp32 and then cast."""

    def __init__(self, size: int):
        self.size = size
        self._tables: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def table(self, end: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the rows of positions 0 ... end - 1."""
        cached = self._tables.get((device, dtype))
        if cached is None or cached.shape[0] < end:
            exponents = torch.arange(0, self.size, 2, dtype=torch.float32, device=device) / self.size
            angles = torch.outer(torch.arange(end, dtype=torch.float32, device=device), _BASE**-exponents)
            cached = torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)
            if device.type != "meta":
                self._tables[device, dtype] = cached
        return cached[:end]
