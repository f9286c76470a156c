"""Causal self-attention by torch's scaled_dot_product_attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.model.alibi import Alibi
from neoxlite.model.cache import KeyValueCache
from neoxlite.model.dropout import head_dropout
from neoxlite.model.fused import qkv_rotary, split_heads
from neoxlite.model.rotary import Rotary
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.linear import ColumnParallelLinear, RowParallelLinear
from neoxlite.parallel.topology import Topology

_LEAST_STRETCH = 1024
"""Queries of a sliding window that attend together, with one mask, where the window is shorter."""


class SelfAttention(nn.Module):
    """Multi-head attention with one matrix for queries, keys and values.

    Rows of ``query_key_value`` are head-major, [heads, (q, k, v), head_size]; with fewer key/value heads than heads
    (grouped queries) all q rows come first, then k, then v. Both are GPT-NeoX's order
    (megatron/model/transformer.py, ParallelSelfAttention).
    """

    def __init__(self, spec: ModelSpec, block: int, topology: Topology, rotary: Rotary | None):
        super().__init__()
        self.spec = spec
        self.block = block
        self.rotary = rotary
        self.heads = spec.num_attention_heads // topology.tensor_size
        self.kv_heads = spec.num_kv_heads // topology.tensor_size
        self.first_head = topology.tensor_rank * self.heads
        self.fused_rotary = False
        """Whether matrix and rotation are one function (`neoxlite.model.fused`) where nothing is cached."""
        self.fp8: str | None = None
        """The recipe by which that function's products are in fp8 (`neoxlite.model.fp8`)."""
        self.alibi: Alibi | None = None
        if spec.pos_emb == "alibi":
            self.alibi = Alibi(spec.num_attention_heads, self.first_head, self.heads, spec.head_size)
        widths = tuple(count * spec.head_size for count in (spec.num_attention_heads, *[spec.num_kv_heads] * 2))
        bias = spec.bias_in_attention
        self.query_key_value = ColumnParallelLinear(
            spec.hidden_size,
            sum(widths),
            bias=bias,
            topology=topology,
            what="attention heads",
            parts=None if self.kv_heads == self.heads else widths,
        )
        self.dense = RowParallelLinear(
            spec.hidden_size, spec.hidden_size, bias=bias, topology=topology, what="attention heads"
        )

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """(batch, length, hidden) -> (batch, length, hidden); with ``cache`` the positions follow the cached ones."""
        start = 0 if cache is None else cache.length
        q, k, v = self._fused(x) if self.fused_rotary and cache is None else self._projected(x, start)
        if cache is not None:
            k, v = cache.append(self.block, k, v)
        if self.training and self.spec.attention_dropout > 0:
            attended = self._attend_with_dropout(q, k, v)
        else:
            if self.alibi is not None:
                q, k, v = self.alibi.extend(q, k, v, start)
            attended = self._attend(q, k, v, start)[..., : self.spec.head_size]
        out: Tensor = self.dense(attended.transpose(1, 2).flatten(2))
        return out

    def prepare(self, length: int, device: torch.device, dtype: torch.dtype) -> None:
        """Make the tables of positions up to ``length``, which would otherwise be made when they are first needed."""
        for positions in (self.rotary, self.alibi):
            if positions is not None:
                positions.tables(length, device, dtype)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
        """Attend from positions ``start`` on to all earlier keys, or to those in the window."""
        length, window = q.shape[-2], self.spec.window
        if window is None or start + length <= window + 1:  # the last query sees the first key
            return self._attend_masked(q, k, v, start)
        parts = []
        for first in range(0, length, max(window, _LEAST_STRETCH)):
            last = min(first + max(window, _LEAST_STRETCH), length)
            low = max(0, start + first - window)
            keys, values = (x[:, :, low : start + last] for x in (k, v))
            parts.append(self._attend_masked(q[:, :, first:last], keys, values, start + first - low))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)

    def _attend_masked(self, q: Tensor, k: Tensor, v: Tensor, past: int) -> Tensor:
        """Attend to keys of which ``past`` are before the first query; (batch, heads, length, head_size)."""
        mask = _mask(q.shape[-2], past, self.spec.window, q.device)
        grouped = self.kv_heads != self.heads
        if grouped and mask is not None:  # no fused CUDA kernel takes both
            k, v = (x.repeat_interleave(self.heads // self.kv_heads, dim=1) for x in (k, v))
            grouped = False
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            is_causal=mask is None and past == 0,
            scale=self.spec.head_size**-0.5,
            enable_gqa=grouped,
        )

    def _attend_with_dropout(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to earlier tokens with the (batch, heads, length, length) probabilities in memory.

        The fused kernels draw their own masks, which depend on the layout.
        """
        if self.kv_heads != self.heads:
            k, v = (x.repeat_interleave(self.heads // self.kv_heads, dim=1) for x in (k, v))
        length = q.shape[-2]
        scores = (q @ k.transpose(-2, -1)).float() * self.spec.head_size**-0.5
        if self.alibi is not None:
            scores = scores + self.alibi.bias(length, q.device)
        seen = _within(length, 0, self.spec.window, q.device)
        probabilities = scores.masked_fill(~seen, -torch.inf).softmax(-1).to(q.dtype)
        return head_dropout(probabilities, self.spec.attention_dropout, self.block, self.first_head) @ v

    def _projected(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return q (batch, heads, length, head_size), k and v (batch, kv_heads, length, head_size)."""
        q, k, v = split_heads(self.query_key_value(x), self.heads, self.kv_heads)
        if self.rotary is not None:
            q, k = self.rotary.rotate(q, k, start)
        return q, k, v

    def _fused(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Do the same as `_projected` from position 0."""
        assert self.rotary is not None
        matrix = self.query_key_value
        tables = self.rotary.tables(x.shape[1], x.device, x.dtype)
        heads, group = (self.heads, self.kv_heads), matrix.topology.group_name("tensor")
        return qkv_rotary(x, matrix.weight, matrix.bias, tables, heads, fp8=self.fp8, group=group)


def _mask(length: int, past: int, window: int | None, device: torch.device) -> Tensor | None:
    """Return which keys the queries see; None where all before them are seen, or is_causal says it."""
    if (window is None or past + length <= window + 1) and (past == 0 or length == 1):
        return None
    return _within(length, past, window, device)


def _within(length: int, past: int, window: int | None, device: torch.device) -> Tensor:
    """Return (length, past + length) booleans: a query sees itself and all before it, or ``window`` of them."""
    seen = torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)
    return seen if window is None else seen.triu(past - window)
