"""ALiBi (Press et al. 2022): a score falls by the distance between query and key, each head at a rate of its own.

The penalty ``slope * (key - query)`` is a sum of products, one factor of the query's position and one of the key's, so
that it can be computed as part of the dot product by features appended to queries and keys. No matrix of
length x length is made, and the fused causal kernels take it. A term that is the same for all keys of a query has no
effect on the softmax; it only keeps the scores near the diagonal small, and may be rounded.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from neoxlite.model.position_tables import PositionTables

FEATURES = 8
"""Appended to a head: five are used, and fused kernels want a multiple of eight."""
_EXACT = 256
"""Whole numbers up to here are exact in bfloat16, as are its multiples up to its square."""
_LARGEST = 2.0**15
"""Bound of the rounded term, within fp16."""


def alibi_slopes(heads: int) -> list[float]:
    """Return the rate of each head: 2^(-8 i / n) for a power of two, else with every other one of the next power.

    As GPT-NeoX has it (megatron/model/positional_embeddings.py), which is the paper's own rule.
    """
    power = 2 ** int(math.log2(heads))

    def geometric(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (place + 1) / count) for place in range(count)]

    return geometric(power) + geometric(2 * power)[::2][: heads - power]


class Alibi:
    """The penalty of one tensor-parallel rank's heads.

    Args:
        heads: of the model.
        first: the first of this rank's heads.
        count: how many it has.
        head_size: features of a head, by whose root scores are divided.
    """

    def __init__(self, heads: int, first: int, count: int, head_size: int):
        self._slopes = alibi_slopes(heads)[first : first + count]
        self._scale = math.sqrt(head_size)
        self._tables = PositionTables(self._make)

    def extend(self, q: Tensor, k: Tensor, v: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Append `FEATURES` to the last dimension; the dot product is to be divided by the root of the head's size.

        Args:
            q: (batch, heads, length, head_size), from position ``start`` on.
            k: (batch, kv_heads, keys, head_size), from position 0 on; ``v`` alike. Its features are zeros.
        """
        of_queries, of_keys = self.tables(max(k.shape[2], start + q.shape[2]), q.device, q.dtype)
        of_queries = of_queries[:, start : start + q.shape[2]].expand(q.shape[0], -1, -1, -1)
        of_keys = of_keys[: k.shape[2]].expand(*k.shape[:2], -1, -1)
        return torch.cat((of_queries, q), -1), torch.cat((of_keys, k), -1), F.pad(v, (0, FEATURES))

    def tables(self, length: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the features of queries (heads, positions, `FEATURES`) and of keys (positions, `FEATURES`).

        There are at least ``length`` positions.
        """
        return self._tables.get(length, device, dtype)

    def _make(self, length: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Positions are split, and slopes are the sum of two numbers of ``dtype``: the products are exact."""
        slopes = torch.tensor(self._slopes, dtype=torch.float64, device=device) * self._scale
        positions = torch.arange(length, device=device)
        high = slopes.to(dtype)
        low = (slopes - high).to(dtype)
        constant = (-slopes[:, None] * positions).clamp(min=-_LARGEST).to(dtype)
        rates = [rate[:, None].expand(-1, length) for rate in (high, low, high, low)]
        nothing = torch.zeros_like(constant)
        of_queries = torch.stack((constant, *rates, *[nothing] * (FEATURES - 5)), -1)
        coarse, fine = (positions // _EXACT * _EXACT).to(dtype), (positions % _EXACT).to(dtype)
        zero = torch.zeros_like(fine)
        return of_queries, torch.stack((zero + 1, coarse, coarse, fine, fine, *[zero] * (FEATURES - 5)), -1)

    def bias(self, length: int, device: torch.device) -> Tensor:
        """Return the penalty itself, (heads, length, length) in fp32."""
        slopes = torch.tensor(self._slopes, dtype=torch.float32, device=device)
        positions = torch.arange(length, device=device)
        return slopes[:, None, None] * (positions[None, :] - positions[:, None])
