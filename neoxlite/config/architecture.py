"""The shape of the model: attention of each layer, MLP width, parameters, FLOPs, pipeline stages. Arithmetic only."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from neoxlite.errors import ConfigError

GATED = frozenset(("geglu", "reglu", "bilinear", "swiglu", "glu"))
_COUNTED_ATTENTION = frozenset(
    ("global", "local", "flash", "sparse_fixed", "sparse_variable", "bigbird", "bslongformer")
)
_NORM_WIDTHS = {"layernorm": 2, "rmsnorm": 1, "non_parametric_layernorm": 0}  # vectors of hidden_size


def expand_attention(pattern: list[Any] | None, num_layers: int) -> list[str]:
    """Return the kind of attention of each layer.

    ``[[["flash"], 32]]`` repeats the inner list 32 times, ``[[["a", "b"], "all"]]`` until all layers are covered, and a
    plain list of words is taken as it is (megatron/utils.py, ``expand_attention_types``).

    Raises:
        ConfigError: the pattern is none of these, or does not give one word for each layer.
    """
    if pattern is None:
        return ["global"] * num_layers
    if all(isinstance(item, str) for item in pattern):
        kinds = list(pattern)
    else:
        kinds = list(itertools.chain.from_iterable(_repeat(item, num_layers) for item in pattern))
    if len(kinds) != num_layers:
        raise ConfigError(
            f"attention_config gives {len(kinds)} layers, num_layers is {num_layers}",
            hint=f'for one kind everywhere write attention_config: [[["flash"], {num_layers}]]',
        )
    return kinds


def _repeat(item: Any, num_layers: int) -> list[str]:
    match item:
        case [[*kinds], int(count)] if count * len(kinds) > num_layers:
            raise ConfigError(
                f"attention_config repeats {len(kinds)} kinds {count} times; num_layers is {num_layers}",
                hint='use "all" for the count',
            )
        case [[*kinds], count] if kinds and all(isinstance(kind, str) for kind in kinds):
            if count == "all":
                if num_layers % len(kinds):
                    raise ConfigError(
                        f"attention_config: {len(kinds)} kinds cannot be repeated over {num_layers} layers",
                        hint=f"num_layers must be a multiple of {len(kinds)}",
                    )
                count = num_layers // len(kinds)
            if isinstance(count, str) and count.isascii() and count.isdigit():
                raise ConfigError(
                    f"attention_config: the count {count!r} is a text", hint=f"write it without quotes: {count}"
                )
            if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
                return list(kinds) * count
    raise ConfigError(
        f"attention_config: {item!r} is not of the form [[kinds], count]",
        hint='write attention_config: [[["global"], "all"]]',
    )


def _up_to_multiple(number: int, multiple: int) -> int:
    return math.ceil(number / multiple) * multiple


@dataclass(frozen=True)
class Architecture:
    """What the parameter count and the cost of an iteration depend on. Field names are GPT-NeoX's keys."""

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int | None
    seq_length: int
    max_position_embeddings: int
    intermediate_size: int | None
    expansion_factor: float | None
    mlp_multiple_of: int
    activation: str
    norm: str
    pos_emb: str
    opt_pos_emb_offset: int
    no_weight_tying: bool
    gpt_j_residual: bool
    gpt_j_tied: bool
    use_bias_in_norms: bool
    use_bias_in_attn_linear: bool
    use_bias_in_mlp: bool
    attention_kinds: tuple[str, ...]

    def mlp_widths(self) -> tuple[int, int]:
        """Return (rows of the first matrix, columns of the second).

        A gated activation takes two thirds of the width for both halves together (megatron/model/transformer.py).
        """
        base = self.intermediate_size
        if base is None:
            base = int(self.expansion_factor * self.hidden_size) if self.expansion_factor else 4 * self.hidden_size
        multiple = self.mlp_multiple_of
        if self.activation in GATED:
            both = int(2 * base / 3)
            return _up_to_multiple(both, 2 * multiple), _up_to_multiple(both // 2, multiple)
        return _up_to_multiple(base, 2 * multiple), _up_to_multiple(base, multiple)

    def _refuse_uncounted(self) -> None:
        unknown = {kind for kind in self.attention_kinds if kind not in _COUNTED_ATTENTION}
        if unknown:
            raise ConfigError(
                f"the parameters and cost of attention_config kind {', '.join(sorted(unknown))} cannot be counted",
                hint=f"countable kinds: {', '.join(sorted(_COUNTED_ATTENTION))}",
            )
        if self.norm not in _NORM_WIDTHS:
            raise ConfigError(
                f"the parameters of norm {self.norm} cannot be counted", hint=f"countable: {', '.join(_NORM_WIDTHS)}"
            )

    def norm_parameters(self) -> int:
        """Return the parameters of one normalisation; only LayerNorm has a bias, if ``use_bias_in_norms``."""
        vectors = _NORM_WIDTHS[self.norm]
        if self.norm == "layernorm" and not self.use_bias_in_norms:
            vectors = 1
        return vectors * self.hidden_size

    def block_parameters(self, tensor: int = 1) -> int:
        """Return the parameters of one transformer block on one of ``tensor`` tensor-parallel ranks.

        The first matrix of attention and of the MLP is cut by rows, with its bias; the second by columns, bias whole.
        With gpt_j_tied a block has one norm; GPT-NeoX keeps a second one there that takes no part in the computation.
        """
        h = self.hidden_size
        kv_width = h // self.num_attention_heads * (self.num_kv_heads or self.num_attention_heads)
        qkv_width = h + 2 * kv_width
        wide, narrow = self.mlp_widths()
        cut = qkv_width * h + h * h + wide * h + h * narrow
        norms = 1 if self.gpt_j_residual and self.gpt_j_tied else 2
        whole = norms * self.norm_parameters()
        if self.use_bias_in_attn_linear:
            cut, whole = cut + qkv_width, whole + h
        if self.use_bias_in_mlp:
            cut, whole = cut + wide, whole + h
        return cut // tensor + whole

    def embedding_parameters(self, padded_vocab: int, tensor: int = 1) -> int:
        """Return the parameters of the word embedding, cut by rows, and of the learned positions, whole."""
        words = padded_vocab // tensor * self.hidden_size
        if self.pos_emb != "learned":
            return words
        return words + (self.max_position_embeddings + self.opt_pos_emb_offset) * self.hidden_size

    def layer_parameters(self, padded_vocab: int, tensor: int = 1) -> list[int]:
        """Return the parameters of each entry of the pipeline's layer list, ``num_layers + 5`` of them.

        The entries: embedding, a transpose, the blocks, a transpose, the final norm, the head. A tied head counts as
        the whole embedding again, which the last stage holds a copy of.

        Raises:
            ConfigError: the configuration has parts whose parameters are not known here.
        """
        self._refuse_uncounted()
        blocks = [self.block_parameters(tensor)] * self.num_layers
        embedding = self.embedding_parameters(padded_vocab, tensor)
        head = padded_vocab // tensor * self.hidden_size if self.no_weight_tying else embedding
        return [embedding, 0, *blocks, 0, self.norm_parameters(), head]

    def layer_flops(self, padded_vocab: int) -> list[int]:
        """Return the multiplications and additions of a token's forward pass in each entry of the layer list.

        Of a block its matrices and half of the attention, which is causal; of the head its matrix, counted at the norm
        before it, so that no cut comes between; the rest is little.

        Raises:
            ConfigError: the configuration has parts whose parameters are not known here.
        """
        _, _, *blocks, _, _, _ = self.layer_parameters(padded_vocab)
        block = [2 * parameters + 2 * self.seq_length * self.hidden_size for parameters in blocks]
        return [0, 0, *block, 0, 2 * padded_vocab * self.hidden_size, 0]

    def parameter_count(self, padded_vocab: int, tensor: int = 1) -> int:
        """Return the parameters of the model, each counted once, on one of ``tensor`` tensor-parallel ranks."""
        layers = self.layer_parameters(padded_vocab, tensor)
        return sum(layers) - (0 if self.no_weight_tying else layers[-1])

    def flops_per_iteration(self, padded_vocab: int, train_batch_size: int, recompute: bool) -> float:
        """Return the floating-point operations of one optimiser step over all GPUs.

        24 f B s L h^2 (1 + s/6h + V/16Lh) with f = 3 passes, 4 with recomputation (Narayanan et al. 2021, appendix;
        megatron/logging.py, ``get_actual_flops``).

        Raises:
            ConfigError: the configuration has parts whose cost is not known here.
        """
        self._refuse_uncounted()
        passes = 4 if recompute else 3
        layers, h, s = self.num_layers, self.hidden_size, self.seq_length
        dense = 24 * passes * train_batch_size * s * layers * h**2
        return dense * (1 + s / (6 * h) + padded_vocab / (16 * layers * h))
