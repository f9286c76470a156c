"""Sinusoidal positions (Vaswani et al. 2017) in GPT-NeoX's form: all sines, then all cosines; nothing is learned."""

from __future__ import annotations

import torch
from torch import Tensor

from neoxlite.model.position_tables import PositionTables

_BASE = 10000.0


class Sinusoids:
    """A table of (positions, ``size``), computed in fp32 and then cast."""

    def __init__(self, size: int):
        self.size = size
        self._tables = PositionTables(self._make)

    def table(self, end: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the rows of positions 0 ... end - 1."""
        (table,) = self._tables.get(end, device, dtype)
        return table[:end]

    def _make(self, length: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor]:
        exponents = torch.arange(0, self.size, 2, dtype=torch.float32, device=device) / self.size
        angles = torch.outer(torch.arange(length, dtype=torch.float32, device=device), _BASE**-exponents)
        return (torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype),)
