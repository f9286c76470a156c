"""The layouts that the tests compare: ranks and keys, all with the same global batch of 8 samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

GLOBAL_BATCH = 8

LLAMA: dict[str, Any] = {
    "activation": "swiglu",
    "norm": "rmsnorm",
    "num_kv_heads": 2,
    "intermediate_size": 192,
    "mlp_multiple_of": 8,
}
"""Gated MLP and grouped queries: matrices that stack several things."""
TIED: dict[str, Any] = {"no_weight_tying": False, "pos_emb": "learned", "eod_mask_loss": True}
ALIBI: dict[str, Any] = {"pos_emb": "alibi", "sliding_window_width": 6, "num_kv_heads": 2}
DROPOUT: dict[str, Any] = {"hidden_dropout": 0.1, "attention_dropout": 0.1}


_SIZES = {"seq_length": 16, "max_position_embeddings": 16}


def layout(
    name: str, stage: int, *, recompute: bool = False, accumulation: int | None = None
) -> tuple[int, dict[str, Any]]:
    """Return (ranks, keys) of a layout by its name, as ``tp2``, ``dp2 x pp2`` or ``dp1``.

    Args:
        accumulation: micro-batches of a step; by default 4 in a pipeline, else 2.
    """
    sizes = {axis: int(number) for axis, number in re.findall(r"(dp|tp|pp)(\d+)", name)}
    data, tensor, pipeline = (sizes.get(axis, 1) for axis in ("dp", "tp", "pp"))
    accumulation = accumulation or (4 if pipeline > 1 else 2)
    keys: dict[str, Any] = {
        **_SIZES,
        "model_parallel_size": tensor,
        "pipe_parallel_size": pipeline,
        "train_micro_batch_size_per_gpu": GLOBAL_BATCH // data // accumulation,
        "gradient_accumulation_steps": accumulation,
        # Small parameters would stay whole on every rank, and all of these are small.
        "zero_optimization": {"stage": stage, **({"stage3_param_persistence_threshold": 0} if stage == 3 else {})},
        "checkpoint_activations": recompute,
    }
    return data * tensor * pipeline, keys


_ALONE: dict[str, Any] = {}


def single_process(train: Callable[..., Any], iterations: int, changes: Mapping[str, Any]) -> Any:
    """Return a run of one process without ZeRO or recomputation; made once for each model and length."""
    key = f"{iterations} {sorted(changes.items())}"
    if key not in _ALONE:
        size, keys = layout("dp1", 0)
        _ALONE[key] = train(size, train_iters=iterations, **keys, **changes)
    return _ALONE[key]
