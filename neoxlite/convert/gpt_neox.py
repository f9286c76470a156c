"""GPTNeoXForCausalLM: which keys it needs, and what its weights are called.

Source: config.json and weights as transformers reads them, and GPT-NeoX's order of rows (`neoxlite.model.attention`,
`neoxlite.model.mlp`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neoxlite.convert.family import (
    Family,
    common_config,
    common_keys,
    common_obstacles,
    float_of,
    given_or_zeros,
    needed,
    number_of,
    outer_names,
    refused,
    rope_keys,
    window_obstacles,
)
from neoxlite.convert.weight import Weight
from neoxlite.model.spec import ModelSpec

# GPT-NeoX's plain activations -> transformers' hidden_act; the exact GELU and its tanh form are told apart.
_PLAIN = {"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu", "mish": "mish"}
TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")


def _obstacles(spec: ModelSpec) -> list[str]:
    found = common_obstacles(spec) + window_obstacles(spec)
    if spec.norm != "layernorm":
        found.append(f"norm: {spec.norm} (it has layernorm)")
    if spec.activation not in _PLAIN:
        found.append(f"activation: {spec.activation} (it has {', '.join(_PLAIN)})")
    if spec.num_kv_heads != spec.num_attention_heads:
        found.append(f"num_kv_heads: {spec.num_kv_heads} (it has one for each of {spec.num_attention_heads} heads)")
    return found


def _config(spec: ModelSpec) -> dict[str, Any]:
    return common_config(spec) | {
        "hidden_act": TANH[0] if spec.activation == "gelu" and spec.gelu_tanh else _PLAIN[spec.activation],
        "layer_norm_eps": spec.norm_epsilon,
        "rotary_pct": spec.rotary_pct,
        "rotary_emb_base": spec.rotary_emb_base,
        "use_parallel_residual": spec.parallel_residual,
        "attention_bias": spec.bias_in_attention,
        "hidden_dropout": spec.hidden_dropout,
        "classifier_dropout": 0.0,
    }


_NEOX_BLOCK = {
    "attention.query_key_value": "attention.query_key_value",
    "attention.dense": "attention.dense",
    "mlp.linear1": "mlp.dense_h_to_4h",
    "mlp.linear2": "mlp.dense_4h_to_h",
}
_NEOX_TOP = ("gpt_neox.embed_in.weight", "gpt_neox.final_layer_norm", "embed_out.weight")


def _export(spec: ModelSpec, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    found, width = {}, (spec.hidden_size,)
    like = weights["0.word_embeddings.weight"]
    for ours, theirs in outer_names(spec, *_NEOX_TOP).items():
        found[theirs] = given_or_zeros(weights, ours, width, like)
    for block in range(spec.num_layers):
        here, there = f"{block + 2}.", f"gpt_neox.layers.{block}."
        for theirs in ("input_layernorm", "post_attention_layernorm"):
            # gpt_j_tied: both branches read one norm; two norms with its weights are the same.
            ours = "input_layernorm" if spec.shared_norm else theirs
            for kind in ("weight", "bias"):
                found[f"{there}{theirs}.{kind}"] = given_or_zeros(weights, f"{here}{ours}.{kind}", width, like)
        for ours, theirs in _NEOX_BLOCK.items():
            matrix = weights[f"{here}{ours}.weight"]
            found[f"{there}{theirs}.weight"] = matrix
            # Biases of attention can be left out there, those of the MLP cannot.
            if not ours.startswith("attention.") or spec.bias_in_attention:
                found[f"{there}{theirs}.bias"] = given_or_zeros(weights, f"{here}{ours}.bias", matrix.shape[:1], like)
    return found


def _keys(config: Mapping[str, Any]) -> dict[str, Any]:
    act = config.get("hidden_act", "gelu")
    if act not in (*_PLAIN.values(), *TANH):
        raise refused("hidden_act", act, f"neoxlite has {', '.join((*_PLAIN, *TANH))}")
    return common_keys(config) | {
        **rope_keys(config, "rotary_emb_base", "rotary_pct", 0.25),
        "norm": "layernorm",
        "layernorm_epsilon": float_of(config, "layer_norm_eps", 1e-5),
        "activation": "gelu" if act in TANH else next(ours for ours, theirs in _PLAIN.items() if theirs == act),
        "bias_gelu_fusion": act in TANH,
        "gpt_j_residual": bool(config.get("use_parallel_residual", True)),
        "gpt_j_tied": False,
        "intermediate_size": number_of(config, "intermediate_size"),
        "use_bias_in_norms": True,
        "use_bias_in_attn_linear": bool(config.get("attention_bias", True)),
        "use_bias_in_mlp": True,
    }


def _take(spec: ModelSpec, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    names = outer_names(spec, *_NEOX_TOP)
    if _NEOX_TOP[2] not in weights and "lm_head.weight" in weights:  # as transformers 5 may save it
        names = {ours: "lm_head.weight" if theirs == _NEOX_TOP[2] else theirs for ours, theirs in names.items()}
    for block in range(spec.num_layers):
        here, there = f"{block + 2}.", f"gpt_neox.layers.{block}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            names |= {f"{here}{norm}.{kind}": f"{there}{norm}.{kind}" for kind in ("weight", "bias")}
        for ours, theirs in _NEOX_BLOCK.items():
            names[f"{here}{ours}.weight"] = f"{there}{theirs}.weight"
            if not ours.startswith("attention.") or spec.bias_in_attention:
                names[f"{here}{ours}.bias"] = f"{there}{theirs}.bias"
    return {ours: needed(weights, theirs) for ours, theirs in names.items()}


GPT_NEOX = Family("gpt_neox", "GPTNeoXForCausalLM", _obstacles, _config, _export, _keys, _take)
