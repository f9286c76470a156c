"""What the fused functions compute, written another way and in fp64."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rotated(x: Tensor, size: int, base: float) -> Tensor:
    """Rotate features j and j + size / 2 of (batch, length, heads, features) as a complex number (Su et al. 2021)."""
    positions = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)
    frequencies = base ** -(torch.arange(0, size, 2, dtype=torch.float64, device=x.device) / size)
    angles = torch.outer(positions, frequencies)
    turn = torch.polar(torch.ones_like(angles), angles)[:, None, :]
    turned = torch.complex(x[..., : size // 2], x[..., size // 2 : size]) * turn
    return torch.cat((turned.real, turned.imag, x[..., size:]), dim=-1)


def query_key_value(
    x: Tensor, weight: Tensor, bias: Tensor, heads: tuple[int, int], size: int, turn: tuple[int, float]
) -> list[Tensor]:
    """Return q, k, v (batch, heads, length, size) in GPT-NeoX's order of rows; ``turn``: rotated features and base."""
    flat = F.linear(x, weight, bias).view(*x.shape[:2], -1, size)
    count, kv_count = heads
    if count == kv_count:
        q, k, v = flat.view(*x.shape[:2], count, 3, size).unbind(3)
    else:
        q, k, v = flat.split([count, kv_count, kv_count], dim=2)
    return [part.transpose(1, 2) for part in (rotated(q, *turn), rotated(k, *turn), v)]


def relative_error(found: Tensor | None, wanted: Tensor | None) -> float:
    """Norm of the difference over the norm."""
    assert found is not None
    assert wanted is not None
    return float(((found.double() - wanted).norm() / wanted.norm()).detach())
