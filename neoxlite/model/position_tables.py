"""Tables by position, kept for each device and dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

_Tables = TypeVar("_Tables", bound=tuple[Tensor, ...])


class PositionTables(Generic[_Tables]):
    """Tables whose last dimension but one is the position.

    They are no buffers: a cast of the module would round them. Where they are too short they are made again at least
    twice as long, for generation asks for one position more with each token.

    Args:
        make: returns the tables of positions 0 to length - 1; what it says of one does not depend on the length.
    """

    def __init__(self, make: Callable[[int, torch.device, torch.dtype], _Tables]):
        self._make = make
        self._kept: dict[tuple[torch.device, torch.dtype], _Tables] = {}

    def get(self, length: int, device: torch.device, dtype: torch.dtype) -> _Tables:
        """Return the tables of at least ``length`` positions."""
        kept = self._kept.get((device, dtype))
        there = 0 if kept is None else kept[0].shape[-2]
        if kept is not None and there >= length:
            return kept
        with torch.inference_mode(False):  # as those of a generation they could not be used in training
            made = self._make(max(length, 2 * there), device, dtype)
        if device.type != "meta":
            self._kept[device, dtype] = made
        return made
