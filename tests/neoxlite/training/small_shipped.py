"""What makes the shipped 2.7B runs small enough for CPUs: the width, the data and the length; layers stay."""

from __future__ import annotations

from typing import Any


def small_run(iterations: int) -> dict[str, Any]:
    """Return the keys, for --set, of a run in fp32 that decays its rate to its end."""
    return {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "seq_length": 32,
        "max_position_embeddings": 32,
        "tokenizer_type": "CharLevelTokenizer",
        "bf16": {"enabled": False},
        "data_types": {"grad_accum_dtype": "fp32"},
        "train_iters": iterations,
        "lr_decay_iters": iterations,
        "log_interval": 1,
        "eval_iters": 0,
        "split": "8,1,1",
    }
