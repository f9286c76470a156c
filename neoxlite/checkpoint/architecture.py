"""Which mathematics a checkpoint's weights belong to, as configuration keys in its manifest. Imports no torch.

Many keys change what a model computes and no shape: with another number of heads or another activation the weights
still fit, and the loss is wrong without a word. What only training sees (dropout, initialisation, recomputation, the
length of a sample) is no part of the entry, nor is the vocabulary, which is compared by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neoxlite.errors import CheckpointError
from neoxlite.model.spec import GATED_ACTIVATIONS, ModelSpec

_HINT = "set the checkpoint's values, which its config.yml has"
_TAKE = ", or finetune: true to take the weights anyway"
_ANEW = "; weights of other shapes cannot be taken: start at 0 with another folder in load and save"
_SHAPES = (
    "num_layers",
    "hidden_size",
    "norm",
    "no_weight_tying",
    "use_bias_in_norms",
    "use_bias_in_attn_linear",
    "use_bias_in_mlp",
)
"""Keys that always decide which parameters there are, or their shapes."""


def architecture_of(spec: ModelSpec) -> dict[str, Any]:
    """Return the configuration keys that decide what ``spec`` computes, and no key that is without effect in it."""
    epsilon = "rms_norm_epsilon" if spec.norm == "rmsnorm" else "layernorm_epsilon"
    keys: dict[str, Any] = {
        "num_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "num_attention_heads": spec.num_attention_heads,
        "num_kv_heads": spec.num_kv_heads,
        "norm": spec.norm,
        epsilon: spec.norm_epsilon,
        "pos_emb": spec.pos_emb,
        "sliding_window_width": spec.window,
        "activation": spec.activation,
        "no_weight_tying": not spec.tied_head,
        "gpt_j_residual": spec.parallel_residual,
        "use_bias_in_norms": spec.bias_in_norms,
        "use_bias_in_attn_linear": spec.bias_in_attention,
        "use_bias_in_mlp": spec.bias_in_mlp,
    }
    if spec.pos_emb == "rotary":
        keys |= {"rotary_pct": float(spec.rotary_pct), "rotary_emb_base": float(spec.rotary_emb_base)}
    if spec.parallel_residual:
        keys["gpt_j_tied"] = spec.shared_norm
    if spec.activation == "gelu":
        keys["bias_gelu_fusion"] = spec.gelu_tanh
    return keys


def differences(saved: dict[str, Any], spec: ModelSpec) -> list[str]:
    """Return ``key: value in the checkpoint -> value of spec`` for each key that both have and that differs."""
    now = architecture_of(spec)
    return [f"{key}: {saved[key]!r} -> {now[key]!r}" for key in now if key in saved and saved[key] != now[key]]


def _parameters(keys: dict[str, Any]) -> tuple[Any, ...]:
    """Return what decides names and shapes of the parameters, the vocabulary and the MLP's width apart."""
    heads, groups = keys["num_attention_heads"], keys["num_kv_heads"]
    return (
        *(keys[key] for key in _SHAPES),
        keys.get("gpt_j_tied", False),
        None if groups == heads else (groups, heads),  # heads that are not grouped share the same matrix out
        keys["pos_emb"] == "learned",
        keys["activation"] in GATED_ACTIVATIONS,
    )


def compare_architecture(
    folder: Path, training: dict[str, Any], spec: ModelSpec, *, refuse: bool = True, hint: str | None = None
) -> str | None:
    """Compare the manifest's entry with the model to fill, and return a line for the user, if there is one to say.

    Args:
        training: ``Manifest.training``.
        refuse: False takes the weights for another architecture, which the line then names.
        hint: what to do about a refusal; None: what a training can do.

    Raises:
        CheckpointError: they differ; the message has key and both values. Exit code 2.
    """
    saved = training.get("architecture")
    if saved is None:
        return (
            f"WARNING: {folder} does not record its architecture (an older version wrote it): only shapes are compared"
        )
    changed = differences(saved, spec)
    if not changed:
        return None
    told = f"{folder} is of another architecture: {', '.join(changed)} (checkpoint -> this configuration)"
    if refuse:
        now = architecture_of(spec)
        fit = _parameters({**now, "gpt_j_tied": False, **saved}) == _parameters(now)
        raise CheckpointError(told, hint=hint or f"{_HINT}{_TAKE if fit else _ANEW}", exit_code=2)
    return f"WARNING: {told}"
