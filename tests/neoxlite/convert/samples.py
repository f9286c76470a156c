"""Configurations of small models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

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


def spec_of(folder: Path, padded_vocab_size: int = 512, /, **keys: Any) -> Any:
    """Return the model of `BASE` with changes."""
    from neoxlite.config import load_config
    from neoxlite.model.spec import ModelSpec

    path = folder / "model.yml"
    path.write_text(yaml.safe_dump({**BASE, **keys}), encoding="utf-8")
    return ModelSpec.from_config(load_config(path), padded_vocab_size)
