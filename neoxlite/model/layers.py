"""The entries of the layer list: embedding, blocks, final norm, head.

Activations between entries are one tensor (batch, length, hidden), so that the list can be cut anywhere.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.model.attention import SelfAttention
from neoxlite.model.cache import KeyValueCache
from neoxlite.model.dropout import dropout
from neoxlite.model.mlp import MLP
from neoxlite.model.norms import build_norm
from neoxlite.model.rotary import Rotary
from neoxlite.model.sinusoids import Sinusoids
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.collectives import column_product, reduce_from_tensor_parallel
from neoxlite.parallel.linear import ColumnParallelLinear
from neoxlite.parallel.slicing import sliced_parameter
from neoxlite.parallel.topology import Topology


class Table(nn.Module):
    """A lookup table; ``weight`` has one row per index."""

    def __init__(self, weight: nn.Parameter):
        super().__init__()
        self.weight = weight

    def forward(self, indices: Tensor) -> Tensor:
        """(...) -> (..., hidden)."""
        return F.embedding(indices, self.weight)


class VocabularyTable(Table):
    """A lookup table whose rows are sliced over the tensor-parallel ranks; each looks up the tokens it has."""

    def __init__(self, full_shape: tuple[int, int], topology: Topology):
        super().__init__(sliced_parameter(full_shape, 0, topology, "padded vocabulary"))
        self.topology = topology

    def forward(self, indices: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, hidden); with sequence parallelism this rank's part of the length."""
        if self.topology.tensor_size == 1:
            return super().forward(indices)
        rows = self.weight.shape[0]
        local = indices - self.topology.tensor_rank * rows
        elsewhere = (local < 0) | (local >= rows)
        found = F.embedding(local.masked_fill(elsewhere, 0), self.weight).masked_fill(elsewhere.unsqueeze(-1), 0)
        return reduce_from_tensor_parallel(found, self.topology)

    def logits(self, x: Tensor) -> Tensor:
        """(..., hidden) -> (..., padded vocabulary / tp): the table as the matrix of a tied head."""
        return column_product(x, self.weight, None, self.topology)


class Embedding(nn.Module):
    """Token embedding, learned or sinusoidal positions if the model has them, dropout."""

    def __init__(self, spec: ModelSpec, topology: Topology):
        super().__init__()
        self.word_embeddings = VocabularyTable((spec.padded_vocab_size, spec.hidden_size), topology)
        self.position_embeddings: Table | None = None
        if spec.pos_emb == "learned":
            self.position_embeddings = Table(nn.Parameter(torch.empty(spec.max_position_embeddings, spec.hidden_size)))
        self.sinusoids = Sinusoids(spec.hidden_size) if spec.pos_emb == "sinusoidal" else None
        self.dropout = spec.hidden_dropout
        self.part = topology.sequence_part

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """(batch, length) -> (batch, length, hidden); the first token stands at position ``start``.

        With sequence parallelism this rank's part of the length.
        """
        x = self.word_embeddings(tokens)
        first = start + self.part[0] * x.shape[1]
        end = first + x.shape[1]
        if self.position_embeddings is not None:
            x = x + self.position_embeddings(torch.arange(first, end, device=tokens.device))
        if self.sinusoids is not None:
            x = x + self.sinusoids.table(end, x.device, x.dtype)[first:]
        return dropout(x, self.dropout, "embedding", self.part) if self.training else x


class Block(nn.Module):
    """A transformer block: pre-norm with the two branches in sequence, or in parallel (gpt_j_residual)."""

    def __init__(self, spec: ModelSpec, block: int, topology: Topology, rotary: Rotary | None):
        super().__init__()
        self.block = block
        self.parallel = spec.parallel_residual
        self.dropout = spec.hidden_dropout
        self.part = topology.sequence_part
        self.input_layernorm = build_norm(spec)
        self.attention = SelfAttention(spec, block, topology, rotary)
        self.post_attention_layernorm = None if spec.shared_norm else build_norm(spec)
        self.mlp = MLP(spec, topology)
        self.deferring = False
        """Whether the last sum is left to the next block, whose norm reads it (`neoxlite.model.recompute`)."""

    def forward(
        self, x: Tensor, cache: KeyValueCache | None = None, pending: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(batch, length, hidden) -> (batch, length, hidden).

        With ``pending`` the input is the sum of both, and the output two tensors whose sum is meant.
        """
        if pending is not None:
            x = x + pending
        normed = self.input_layernorm(x)
        attended = self._drop(self.attention(normed, cache), "attention")
        if self.parallel:
            if self.post_attention_layernorm is not None:
                normed = self.post_attention_layernorm(x)
            fed = self._drop(self.mlp(normed), "mlp")
            return x + attended + fed if pending is None else (x, attended + fed)
        x = x + attended
        # Sequential branches always have a norm of their own.
        assert self.post_attention_layernorm is not None
        fed = self._drop(self.mlp(self.post_attention_layernorm(x)), "mlp")
        return x + fed if pending is None else (x, fed)

    def _drop(self, x: Tensor, branch: str) -> Tensor:
        if not self.training or self.dropout == 0:
            return x
        return dropout(x, self.dropout, f"{self.block}/{branch}", self.part)


class Border(nn.Module):
    """Keeps GPT-NeoX's layer numbers where its list has a helper without parameters; changes nothing."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``."""
        return x


class FinalNorm(nn.Module):
    """The norm before the head."""

    def __init__(self, spec: ModelSpec):
        super().__init__()
        self.norm = build_norm(spec)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, length, hidden)."""
        normed: Tensor = self.norm(x)
        return normed


class Head(nn.Module):
    """Logits by a matrix of its own; under tensor parallelism each rank has its slice of the vocabulary."""

    def __init__(self, spec: ModelSpec, topology: Topology):
        super().__init__()
        self.final_linear = ColumnParallelLinear(
            spec.hidden_size, spec.padded_vocab_size, bias=False, topology=topology, what="padded vocabulary"
        )

    @property
    def matrix(self) -> Tensor:
        """The weights (padded vocabulary / tp, hidden)."""
        return self.final_linear.weight

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, length, padded vocabulary / tp)."""
        logits: Tensor = self.final_linear(x)
        return logits


class TiedHead(nn.Module):
    """Logits by the embedding's matrix; owns no parameter."""

    def __init__(self, embedding: Embedding):
        super().__init__()
        # In a tuple, so that torch does not register the embedding a second time under this layer's name.
        self._embedding = (embedding,)

    @property
    def matrix(self) -> Tensor:
        """The embedding's weights (padded vocabulary / tp, hidden)."""
        return self._embedding[0].word_embeddings.weight

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, length, padded vocabulary / tp)."""
        return self._embedding[0].word_embeddings.logits(x)


class TiedOutput(nn.Module):
    """Logits by a copy of the embedding's matrix, for a stage that does not have the embedding."""

    def __init__(self, spec: ModelSpec, topology: Topology):
        super().__init__()
        self.word_embeddings = VocabularyTable((spec.padded_vocab_size, spec.hidden_size), topology)

    @property
    def matrix(self) -> Tensor:
        """The copy's weights (padded vocabulary / tp, hidden)."""
        return self.word_embeddings.weight

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, length, padded vocabulary / tp)."""
        return self.word_embeddings.logits(x)


def layer_list(spec: ModelSpec, topology: Topology) -> list[tuple[type[nn.Module], tuple[Any, ...]]]:
    """Return the class and arguments of GPT-NeoX's N + 5 layers at their indices (megatron/model/gpt2_model.py)."""
    rotary = Rotary(spec.rotary_size, spec.rotary_emb_base) if spec.pos_emb == "rotary" else None
    blocks = [(Block, (spec, block, topology, rotary)) for block in range(spec.num_layers)]
    head = TiedOutput if spec.tied_head else Head
    return [
        (Embedding, (spec, topology)),
        (Border, ()),
        *blocks,
        (Border, ()),
        (FinalNorm, (spec,)),
        (head, (spec, topology)),
    ]


def build_layers(spec: ModelSpec, topology: Topology) -> list[nn.Module]:
    """Return the whole list; a tied head uses the embedding itself."""
    *specs, last = layer_list(spec, topology)
    layers = [kind(*args) for kind, args in specs]
    embedding = layers[0]
    assert isinstance(embedding, Embedding)
    head, args = last
    return [*layers, TiedHead(embedding) if spec.tied_head else head(*args)]
