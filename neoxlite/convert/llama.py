"""LlamaForCausalLM, and MistralForCausalLM, which is the same without biases and with a window.

Mistral's sliding_window counts the tokens that are seen, a token itself among them; GPT-NeoX's sliding_window_width
those before it.

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
    needed,
    number_of,
    outer_names,
    refused,
    rope_keys,
    window_obstacles,
)
from neoxlite.convert.weight import Weight, part, stacked
from neoxlite.model.spec import ModelSpec

# GPT-NeoX's gated activations -> transformers' hidden_act.
_GATED = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "glu": "sigmoid", "bilinear": "linear"}

_WINDOW = 4096  # transformers' own, where config.json says nothing


def _llama_obstacles(spec: ModelSpec) -> list[str]:
    return _gated_obstacles(spec) + window_obstacles(spec)


def _gated_obstacles(spec: ModelSpec) -> list[str]:
    found = common_obstacles(spec)
    if spec.norm != "rmsnorm":
        found.append(f"norm: {spec.norm} (it has rmsnorm)")
    if spec.activation not in _GATED:
        found.append(f"activation: {spec.activation} (its MLP is gated: {', '.join(_GATED)})")
    if spec.parallel_residual:
        found.append("gpt_j_residual: true (its branches stand one behind the other)")
    if spec.pos_emb == "rotary" and spec.rotary_size != spec.head_size:
        found.append(f"rotary_pct: {spec.rotary_pct:g} (it rotates whole heads)")
    return found


def _mistral_obstacles(spec: ModelSpec) -> list[str]:
    biases = {"use_bias_in_attn_linear": spec.bias_in_attention, "use_bias_in_mlp": spec.bias_in_mlp}
    return _gated_obstacles(spec) + [f"{key}: true (it has no biases)" for key, given in biases.items() if given]


def _mistral_config(spec: ModelSpec) -> dict[str, Any]:
    return common_config(spec) | {
        "hidden_act": _GATED[spec.activation],
        "rms_norm_eps": spec.norm_epsilon,
        "rope_theta": float(spec.rotary_emb_base),
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_size,
        "sliding_window": None if spec.window is None else spec.window + 1,
    }


def _llama_config(spec: ModelSpec) -> dict[str, Any]:
    config = _mistral_config(spec) | {"attention_bias": spec.bias_in_attention, "mlp_bias": spec.bias_in_mlp}
    del config["sliding_window"]
    return config


_LLAMA_TOP = ("model.embed_tokens.weight", "model.norm", "lm_head.weight")


def _llama_export(spec: ModelSpec, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    found = {theirs: weights[ours] for ours, theirs in outer_names(spec, *_LLAMA_TOP).items()}
    for block in range(spec.num_layers):
        here, there = f"{block + 2}.", f"model.layers.{block}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{there}{norm}.weight"] = weights[f"{here}{norm}.scale"]
        for kind in ("weight", *(["bias"] if spec.bias_in_attention else [])):
            qkv = weights[f"{here}attention.query_key_value.{kind}"]
            for letter, one in zip("qkv", _apart(spec, qkv), strict=True):
                found[f"{there}self_attn.{letter}_proj.{kind}"] = one
            found[f"{there}self_attn.o_proj.{kind}"] = weights[f"{here}attention.dense.{kind}"]
        for kind in ("weight", *(["bias"] if spec.bias_in_mlp else [])):
            both, inner = weights[f"{here}mlp.linear1.{kind}"], spec.mlp_hidden_size
            found[f"{there}mlp.up_proj.{kind}"] = part(both, 0, inner)
            found[f"{there}mlp.gate_proj.{kind}"] = part(both, inner, 2 * inner)
            found[f"{there}mlp.down_proj.{kind}"] = weights[f"{here}mlp.linear2.{kind}"]
    return found


def _apart(spec: ModelSpec, qkv: Weight) -> list[Weight]:
    """Return queries, keys and values out of the fused rows."""
    size, heads, kv = spec.head_size, spec.num_attention_heads, spec.num_kv_heads
    if kv != heads:
        bounds = [0, heads * size, (heads + kv) * size, (heads + 2 * kv) * size]
        return [part(qkv, bounds[i], bounds[i + 1]) for i in range(3)]
    starts = range(0, 3 * heads * size, 3 * size)
    return [stacked([part(qkv, s + i * size, s + (i + 1) * size) for s in starts]) for i in range(3)]


def _fused(spec: ModelSpec, parts: list[Weight]) -> Weight:
    """Return the fused rows; the inverse of `_apart`."""
    size, heads = spec.head_size, spec.num_attention_heads
    if spec.num_kv_heads != heads:
        return stacked(parts)
    return stacked([part(one, head * size, (head + 1) * size) for head in range(heads) for one in parts])


def _mistral_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    act = config.get("hidden_act", "silu")
    names = {theirs: ours for ours, theirs in _GATED.items()}
    if act not in names:
        raise refused("hidden_act", act, f"neoxlite has {', '.join(names)}")
    keys = common_keys(config)
    head = config.get("head_dim")
    if head not in (None, keys["hidden_size"] // keys["num_attention_heads"]):
        raise refused("head_dim", head, "neoxlite's heads have hidden_size / num_attention_heads features")
    keys |= rope_keys(config, "rope_theta", "partial_rotary_factor", 1.0)
    if config.get("sliding_window", _WINDOW) is not None:
        keys["sliding_window_width"] = number_of({"sliding_window": _WINDOW, **config}, "sliding_window") - 1
    kv = config.get("num_key_value_heads")
    return keys | {
        "num_kv_heads": keys["num_attention_heads"] if kv is None else number_of(config, "num_key_value_heads"),
        "norm": "rmsnorm",
        "rms_norm_epsilon": float_of(config, "rms_norm_eps", 1e-6),
        "activation": names[act],
        "gpt_j_residual": False,
        # Value and gate together are two thirds of it.
        "intermediate_size": 3 * number_of(config, "intermediate_size"),
        "use_bias_in_norms": False,
        "use_bias_in_attn_linear": False,
        "use_bias_in_mlp": False,
    }


def _llama_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    return _mistral_keys({**config, "sliding_window": None}) | {
        "use_bias_in_attn_linear": bool(config.get("attention_bias", False)),
        "use_bias_in_mlp": bool(config.get("mlp_bias", False)),
    }


def _llama_take(spec: ModelSpec, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    found = {ours: needed(weights, theirs) for ours, theirs in outer_names(spec, *_LLAMA_TOP).items()}
    for block in range(spec.num_layers):
        here, there = f"{block + 2}.", f"model.layers.{block}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{here}{norm}.scale"] = needed(weights, f"{there}{norm}.weight")
        for kind in ("weight", *(["bias"] if spec.bias_in_attention else [])):
            qkv = [needed(weights, f"{there}self_attn.{letter}_proj.{kind}") for letter in "qkv"]
            found[f"{here}attention.query_key_value.{kind}"] = _fused(spec, qkv)
            found[f"{here}attention.dense.{kind}"] = needed(weights, f"{there}self_attn.o_proj.{kind}")
        for kind in ("weight", *(["bias"] if spec.bias_in_mlp else [])):
            halves = [needed(weights, f"{there}mlp.{name}_proj.{kind}") for name in ("up", "gate")]
            found[f"{here}mlp.linear1.{kind}"] = stacked(halves)
            found[f"{here}mlp.linear2.{kind}"] = needed(weights, f"{there}mlp.down_proj.{kind}")
    return found


LLAMA = Family("llama", "LlamaForCausalLM", _llama_obstacles, _llama_config, _llama_export, _llama_keys, _llama_take)
MISTRAL = Family(
    "mistral", "MistralForCausalLM", _mistral_obstacles, _mistral_config, _llama_export, _mistral_keys, _llama_take
)
