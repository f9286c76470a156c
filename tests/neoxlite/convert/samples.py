"""Configurations of small models."""

from __future__ import annotations

from typing import Any

BASE: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "seq_length": 64,
    "max_position_embeddings": 64,
    "pos_emb": "rotary",
    "rotary_pct": 0.25,
    "no_weight_tying": True,
    "tokenizer_type": "CharLevelTokenizer",
    "train_micro_batch_size_per_gpu": 1,
    "train_iters": 10,
}
LLAMA: dict[str, Any] = {
    "norm": "rmsnorm",
    "rms_norm_epsilon": 1e-6,
    "rotary_pct": 1.0,
    "activation": "swiglu",
    "intermediate_size": 3 * 48,
    "mlp_multiple_of": 1,
    "use_bias_in_mlp": False,
    "use_bias_in_attn_linear": False,
}


def neox_config(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a golden checkpoint, with what its generator set beside the recorded keys."""
    return {
        **recorded,
        "tokenizer_type": "CharLevelTokenizer",
        "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.9, 0.95], "eps": 1e-8}},
        "gradient_clipping": 0.0,
    }
