"""Causal self-attention by torch's scaled_dot_product_attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.model.cache import KeyValueCache
from neoxlite.model.dropout import head_dropout
from neoxlite.model.rotary import Rotary
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.linear import ColumnParallelLinear, RowParallelLinear
from neoxlite.parallel.topology import Topology


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
        q, k, v = self._split(self.query_key_value(x))
        start = 0 if cache is None else cache.length
        if self.rotary is not None:
            q, k = self.rotary.rotate(q, k, start)
        if cache is not None:
            k, v = cache.append(self.block, k, v)
        if self.training and self.spec.attention_dropout > 0:
            attended = self._attend_with_dropout(q, k, v)
        else:
            attended = F.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=self._mask(q, start),
                is_causal=start == 0,
                enable_gqa=self.kv_heads != self.heads,
            )
        out: Tensor = self.dense(attended.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))
        return out

    def _attend_with_dropout(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to all earlier tokens with the (batch, heads, length, length) probabilities in memory.

        The fused kernels draw their own masks, which depend on the layout.
        """
        if self.kv_heads != self.heads:
            k, v = (x.repeat_interleave(self.heads // self.kv_heads, dim=1) for x in (k, v))
        length = q.shape[-2]
        future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(diagonal=1)
        scores = (q @ k.transpose(-2, -1)).float() * self.spec.head_size**-0.5
        probabilities = scores.masked_fill(future, -torch.inf).softmax(-1).to(q.dtype)
        return head_dropout(probabilities, self.spec.attention_dropout, self.block, self.first_head) @ v

    def _split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q (batch, heads, length, head_size), k and v (batch, kv_heads, length, head_size)."""
        batch, length, _ = qkv.shape
        size = self.spec.head_size
        if self.kv_heads == self.heads:
            q, k, v = qkv.view(batch, length, self.heads, 3, size).unbind(dim=3)
        else:
            widths = [self.heads * size, self.kv_heads * size, self.kv_heads * size]
            q, k, v = (part.view(batch, length, -1, size) for part in torch.split(qkv, widths, dim=-1))
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    @staticmethod
    def _mask(q: Tensor, start: int) -> Tensor | None:
        """Mask for several new tokens behind cached ones; one token sees all, and without a past is_causal does it."""
        length = q.shape[-2]
        if start == 0 or length == 1:
            return None
        return torch.ones(length, start + length, dtype=torch.bool, device=q.device).tril(diagonal=start)
