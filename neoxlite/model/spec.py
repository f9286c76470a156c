"""What the model is made of, taken from a GPT-NeoX configuration. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neoxlite.errors import ConfigError

PLAIN_ACTIVATIONS = ("gelu", "relu", "softsign", "swish", "silu", "mish")
GATED_ACTIVATIONS = ("geglu", "reglu", "bilinear", "swiglu", "glu")
_NORMS = ("layernorm", "rmsnorm")
_POSITIONS = ("rotary", "learned", "sinusoidal", "alibi", "none")
_ATTENTION = ("global", "flash")


@dataclass(frozen=True)
class ModelSpec:
    """Shape and parts of one model; lengths in tokens, sizes in features."""

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int
    seq_length: int
    max_position_embeddings: int
    padded_vocab_size: int
    mlp_hidden_size: int
    """Input width of the MLP's second matrix."""
    norm: str = "layernorm"
    norm_epsilon: float = 1e-5
    pos_emb: str = "rotary"
    rotary_pct: float = 1.0
    rotary_emb_base: float = 10000.0
    window: int | None = None
    """Tokens before a token that it sees, besides itself; None: all (sliding_window_width)."""
    activation: str = "gelu"
    gelu_tanh: bool = False
    """GELU by its tanh approximation, which is what GPT-NeoX computes with bias_gelu_fusion."""
    tied_head: bool = False
    parallel_residual: bool = False
    shared_norm: bool = False
    """One norm for both branches of a parallel residual (gpt_j_tied)."""
    bias_in_norms: bool = True
    bias_in_attention: bool = True
    bias_in_mlp: bool = True
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    init_method: str = "normal"
    output_layer_init_method: str = "scaled_normal"
    init_method_std: float = 0.02
    checkpoint_activations: bool = False
    checkpoint_num_layers: int = 1
    recompute_granularity: str = "full"
    partition_activations: bool = False
    checkpoint_in_cpu: bool = False

    @property
    def head_size(self) -> int:
        """Features of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def rotary_size(self) -> int:
        """Features of each head that are rotated."""
        return self.head_size if self.rotary_pct == 1 else int(self.head_size * self.rotary_pct)

    @property
    def gated_mlp(self) -> bool:
        """Whether the MLP's first matrix yields a value and a gate."""
        return self.activation in GATED_ACTIVATIONS

    @property
    def num_list_layers(self) -> int:
        """Entries of the layer list, GPT-NeoX's N + 5."""
        return self.num_layers + 5

    @classmethod
    def from_config(cls, cfg: Any, padded_vocab_size: int) -> ModelSpec:
        """Read the model's keys of a configuration with GPT-NeoX's names.

        Raises:
            ConfigError: a key asks for something this model does not have.
        """
        refuse_unsupported(cfg)
        return cls(
            num_layers=cfg.num_layers,
            hidden_size=cfg.hidden_size,
            num_attention_heads=cfg.num_attention_heads,
            num_kv_heads=cfg.num_kv_heads or cfg.num_attention_heads,
            seq_length=cfg.seq_length,
            max_position_embeddings=cfg.max_position_embeddings,
            padded_vocab_size=padded_vocab_size,
            mlp_hidden_size=_mlp_hidden_size(cfg),
            norm=cfg.norm,
            norm_epsilon=cfg.rms_norm_epsilon if cfg.norm == "rmsnorm" else cfg.layernorm_epsilon,
            pos_emb=cfg.pos_emb,
            rotary_pct=cfg.rotary_pct,
            rotary_emb_base=cfg.rotary_emb_base,
            window=cfg.sliding_window_width,
            activation=cfg.activation,
            gelu_tanh=bool(cfg.bias_gelu_fusion),
            tied_head=not cfg.no_weight_tying,
            parallel_residual=bool(cfg.gpt_j_residual),
            shared_norm=bool(cfg.gpt_j_residual and cfg.gpt_j_tied),
            bias_in_norms=cfg.use_bias_in_norms,
            bias_in_attention=cfg.use_bias_in_attn_linear,
            bias_in_mlp=cfg.use_bias_in_mlp,
            hidden_dropout=cfg.hidden_dropout,
            attention_dropout=cfg.attention_dropout,
            init_method=cfg.init_method,
            output_layer_init_method=cfg.output_layer_init_method,
            init_method_std=cfg.init_method_std,
            checkpoint_activations=bool(cfg.checkpoint_activations),
            checkpoint_num_layers=cfg.checkpoint_num_layers,
            recompute_granularity=cfg.recompute_granularity,
            # With sequence parallelism the ranks have parts already.
            partition_activations=bool(cfg.partition_activations) and not cfg.sequence_parallel,
            checkpoint_in_cpu=bool(cfg.checkpoint_in_cpu),
        )


def refuse_unsupported(cfg: Any) -> None:
    """Raise ConfigError for the first key whose value this model cannot honour."""
    choices = {
        "norm": _NORMS,
        "pos_emb": _POSITIONS,
        "activation": PLAIN_ACTIVATIONS + GATED_ACTIVATIONS,
    }
    for key, known in choices.items():
        if getattr(cfg, key) not in known:
            raise ConfigError(
                f"{key}: {getattr(cfg, key)} is not supported yet", hint=f"neoxlite has {', '.join(known)}"
            )
    for kind in sorted(set(cfg.attention_config)):
        if kind not in _ATTENTION:
            raise ConfigError(
                f"attention_config: {kind} is not supported yet", hint="use global or flash; both run the same kernels"
            )


def _mlp_hidden_size(cfg: Any) -> int:
    """Width between the MLP's matrices; a gated activation takes two thirds of intermediate_size for both halves."""
    rows, columns = cfg.architecture.mlp_widths()
    if rows != columns * (2 if cfg.activation in GATED_ACTIVATIONS else 1):
        raise ConfigError(
            f"the MLP's matrices do not fit each other: the first yields {rows} features, the second takes {columns}",
            hint="set intermediate_size to an even number, or mlp_multiple_of to a power of two",
        )
    return int(columns)
