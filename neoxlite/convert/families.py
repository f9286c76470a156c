"""The Hugging Face architectures that a model can be: which keys they need, and what their weights are called.

Sources: config.json and weights as transformers reads them (models gpt_neox, llama and mistral), and GPT-NeoX's order
of rows (`neoxlite.model.attention`, `neoxlite.model.mlp`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from neoxlite.convert.weight import Weight, part, stacked, zeros
from neoxlite.errors import CheckpointError
from neoxlite.model.spec import ModelSpec

# GPT-NeoX's plain activations -> transformers' hidden_act; the exact GELU and its tanh form are told apart.
_PLAIN = {"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu", "mish": "mish"}
TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")
_GATED = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "glu": "sigmoid", "bilinear": "linear"}


@dataclass(frozen=True)
class Family:
    """One architecture of transformers."""

    name: str
    """Word on the command line and transformers' model_type."""
    class_name: str
    obstacles: Callable[[ModelSpec], list[str]]
    """Returns what a model has that the architecture has not, as ``key: value (reason)``."""
    config: Callable[[ModelSpec], dict[str, Any]]
    """Returns the entries of config.json that describe the model."""
    export: Callable[[ModelSpec, Mapping[str, Weight]], dict[str, Weight]]
    """Returns the weights by the architecture's names."""
    keys: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Returns the configuration keys of a config.json. Raises CheckpointError for what neoxlite has not."""
    take: Callable[[ModelSpec, Mapping[str, Weight]], dict[str, Weight]]
    """Returns the weights by `neoxlite.convert.shape` names; the inverse of ``export``."""


def family_of(spec: ModelSpec, asked: str | None) -> Family:
    """Return the architecture to export a model as: the one asked for, else the first that fits.

    Raises:
        CheckpointError: none fits, or the one asked for does not; the message has the keys.
    """
    candidates = [family for family in FAMILIES if asked in (None, family.name)]
    for family in candidates:
        if not family.obstacles(spec):
            return family
    # The reasons of the architecture that it is nearest to.
    nearest = min(candidates, key=lambda family: len(family.obstacles(spec)))
    raise CheckpointError(
        f"the model cannot be a {nearest.class_name}: {'; '.join(nearest.obstacles(spec))}",
        hint="no architecture of transformers that neoxlite writes has this"
        if asked is None
        else f"leave --architecture out, or choose another: {', '.join(family.name for family in FAMILIES)}",
        exit_code=2,
    )


def family_named(model_type: Any) -> Family:
    """Return the architecture of a config.json's model_type. Raises CheckpointError for one that cannot be read."""
    for family in FAMILIES:
        if family.name == model_type:
            return family
    raise CheckpointError(
        f"config.json: model_type {model_type!r} cannot be read",
        hint=f"neoxlite reads {', '.join(family.name for family in FAMILIES)}",
        exit_code=2,
    )


def _common_obstacles(spec: ModelSpec) -> list[str]:
    return [] if spec.pos_emb == "rotary" else [f"pos_emb: {spec.pos_emb} (it has rotary positions)"]


def _common_config(spec: ModelSpec) -> dict[str, Any]:
    return {
        "vocab_size": spec.padded_vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.mlp_hidden_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_attention_heads,
        "max_position_embeddings": spec.max_position_embeddings,
        "tie_word_embeddings": spec.tied_head,
        "initializer_range": spec.init_method_std,
        "attention_dropout": spec.attention_dropout,
        "use_cache": True,
    }


def _common_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "num_layers": _number(config, "num_hidden_layers"),
        "hidden_size": _number(config, "hidden_size"),
        "num_attention_heads": _number(config, "num_attention_heads"),
        "seq_length": _number(config, "max_position_embeddings"),
        "max_position_embeddings": _number(config, "max_position_embeddings"),
        "pos_emb": "rotary",
        "no_weight_tying": not config.get("tie_word_embeddings", False),
        "mlp_multiple_of": 1,
    }


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise CheckpointError(f"config.json: {key} is {value!r}, not a number from 1 up", hint="copy the folder again")
    return value


def _float(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CheckpointError(f"config.json: {key} is {value!r}, not a number", hint="copy the folder again")
    return float(value)


def _refuse(key: str, value: Any, reason: str) -> CheckpointError:
    return CheckpointError(
        f"config.json: {key}: {value!r} cannot be read: {reason}", hint="this model is not convertible"
    )


def _rope(config: Mapping[str, Any], theta_key: str, share_key: str, share: float) -> dict[str, Any]:
    """Return the rotary keys; transformers 5 keeps them in rope_parameters, earlier ones at the top.

    Raises:
        CheckpointError: scaled frequencies, or a base that GPT-NeoX's integer key cannot hold.
    """
    inner = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(inner, Mapping):
        raise _refuse("rope_parameters", inner, "it is no table")
    kind = inner.get("rope_type", inner.get("type", "default"))
    if kind != "default":
        raise _refuse("rope_scaling", kind, "neoxlite rotates by unscaled frequencies")
    theta = _float(inner, "rope_theta", _float(config, theta_key, _float(config, "rope_theta", 10000.0)))
    if theta != int(theta):
        raise _refuse(theta_key, theta, "rotary_emb_base is a whole number")
    share = _float(inner, "partial_rotary_factor", _float(config, share_key, share))
    return {"rotary_pct": share, "rotary_emb_base": int(theta)}


def _top(spec: ModelSpec, embedding: str, norm: str, head: str) -> dict[str, str]:
    """Return our name -> theirs of what is not in a block."""
    kinds = ("scale",) if spec.norm == "rmsnorm" else ("weight", "bias")
    last = spec.num_layers + 3
    names = {"0.word_embeddings.weight": embedding}
    names |= {f"{last}.norm.{kind}": f"{norm}.{'weight' if kind == 'scale' else kind}" for kind in kinds}
    if not spec.tied_head:
        names[f"{last + 1}.final_linear.weight"] = head
    return names


def _given(weights: Mapping[str, Weight], name: str, shape: tuple[int, ...], like: Weight) -> Weight:
    """Return a weight; one that the model goes without is zeros, which computes the same."""
    return weights[name] if name in weights else zeros(shape, like.dtype)


# GPT-NeoX


def _neox_obstacles(spec: ModelSpec) -> list[str]:
    found = _common_obstacles(spec)
    if spec.norm != "layernorm":
        found.append(f"norm: {spec.norm} (it has layernorm)")
    if spec.activation not in _PLAIN:
        found.append(f"activation: {spec.activation} (it has {', '.join(_PLAIN)})")
    if spec.num_kv_heads != spec.num_attention_heads:
        found.append(f"num_kv_heads: {spec.num_kv_heads} (it has one for each of {spec.num_attention_heads} heads)")
    return found


def _neox_config(spec: ModelSpec) -> dict[str, Any]:
    return _common_config(spec) | {
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


def _neox_export(spec: ModelSpec, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    found, width = {}, (spec.hidden_size,)
    like = weights["0.word_embeddings.weight"]
    for ours, theirs in _top(spec, *_NEOX_TOP).items():
        found[theirs] = _given(weights, ours, width, like)
    for block in range(spec.num_layers):
        here, there = f"{block + 2}.", f"gpt_neox.layers.{block}."
        for theirs in ("input_layernorm", "post_attention_layernorm"):
            # gpt_j_tied: both branches read one norm; two norms with its weights are the same.
            ours = "input_layernorm" if spec.shared_norm else theirs
            for kind in ("weight", "bias"):
                found[f"{there}{theirs}.{kind}"] = _given(weights, f"{here}{ours}.{kind}", width, like)
        for ours, theirs in _NEOX_BLOCK.items():
            matrix = weights[f"{here}{ours}.weight"]
            found[f"{there}{theirs}.weight"] = matrix
            # Biases of attention can be left out there, those of the MLP cannot.
            if not ours.startswith("attention.") or spec.bias_in_attention:
                found[f"{there}{theirs}.bias"] = _given(weights, f"{here}{ours}.bias", matrix.shape[:1], like)
    return found


def _neox_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    act = config.get("hidden_act", "gelu")
    if act not in (*_PLAIN.values(), *TANH):
        raise _refuse("hidden_act", act, f"neoxlite has {', '.join((*_PLAIN, *TANH))}")
    return _common_keys(config) | {
        **_rope(config, "rotary_emb_base", "rotary_pct", 0.25),
        "norm": "layernorm",
        "layernorm_epsilon": _float(config, "layer_norm_eps", 1e-5),
        "activation": "gelu" if act in TANH else next(ours for ours, theirs in _PLAIN.items() if theirs == act),
        "bias_gelu_fusion": act in TANH,
        "gpt_j_residual": bool(config.get("use_parallel_residual", True)),
        "gpt_j_tied": False,
        "intermediate_size": _number(config, "intermediate_size"),
        "use_bias_in_norms": True,
        "use_bias_in_attn_linear": bool(config.get("attention_bias", True)),
        "use_bias_in_mlp": True,
    }


def _neox_take(spec: ModelSpec, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    names = _top(spec, *_NEOX_TOP)
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
    return {ours: _needed(weights, theirs) for ours, theirs in names.items()}


def _needed(weights: Mapping[str, Weight], name: str) -> Weight:
    if name not in weights:
        raise CheckpointError(f"the folder has no weight {name}", hint="copy the folder again")
    return weights[name]


# Llama, and Mistral, which has the same without biases


def _llama_obstacles(spec: ModelSpec) -> list[str]:
    found = _common_obstacles(spec)
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
    return _llama_obstacles(spec) + [f"{key}: true (it has no biases)" for key, given in biases.items() if given]


def _mistral_config(spec: ModelSpec) -> dict[str, Any]:
    return _common_config(spec) | {
        "hidden_act": _GATED[spec.activation],
        "rms_norm_eps": spec.norm_epsilon,
        "rope_theta": float(spec.rotary_emb_base),
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_size,
        "sliding_window": None,
    }


def _llama_config(spec: ModelSpec) -> dict[str, Any]:
    config = _mistral_config(spec) | {"attention_bias": spec.bias_in_attention, "mlp_bias": spec.bias_in_mlp}
    del config["sliding_window"]
    return config


_LLAMA_TOP = ("model.embed_tokens.weight", "model.norm", "lm_head.weight")


def _llama_export(spec: ModelSpec, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    found = {theirs: weights[ours] for ours, theirs in _top(spec, *_LLAMA_TOP).items()}
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
        raise _refuse("hidden_act", act, f"neoxlite has {', '.join(names)}")
    keys = _common_keys(config)
    head = config.get("head_dim")
    if head not in (None, keys["hidden_size"] // keys["num_attention_heads"]):
        raise _refuse("head_dim", head, "neoxlite's heads have hidden_size / num_attention_heads features")
    keys |= _rope(config, "rope_theta", "partial_rotary_factor", 1.0)
    window = config.get("sliding_window")
    if window is not None and window < keys["seq_length"]:
        keys["seq_length"] = window  # up to here the window hides nothing
    kv = config.get("num_key_value_heads")
    return keys | {
        "num_kv_heads": keys["num_attention_heads"] if kv is None else _number(config, "num_key_value_heads"),
        "norm": "rmsnorm",
        "rms_norm_epsilon": _float(config, "rms_norm_eps", 1e-6),
        "activation": names[act],
        "gpt_j_residual": False,
        # Value and gate together are two thirds of it.
        "intermediate_size": 3 * _number(config, "intermediate_size"),
        "use_bias_in_norms": False,
        "use_bias_in_attn_linear": False,
        "use_bias_in_mlp": False,
    }


def _llama_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    return _mistral_keys({key: value for key, value in config.items() if key != "sliding_window"}) | {
        "use_bias_in_attn_linear": bool(config.get("attention_bias", False)),
        "use_bias_in_mlp": bool(config.get("mlp_bias", False)),
    }


def _llama_take(spec: ModelSpec, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    found = {ours: _needed(weights, theirs) for ours, theirs in _top(spec, *_LLAMA_TOP).items()}
    for block in range(spec.num_layers):
        here, there = f"{block + 2}.", f"model.layers.{block}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{here}{norm}.scale"] = _needed(weights, f"{there}{norm}.weight")
        for kind in ("weight", *(["bias"] if spec.bias_in_attention else [])):
            qkv = [_needed(weights, f"{there}self_attn.{letter}_proj.{kind}") for letter in "qkv"]
            found[f"{here}attention.query_key_value.{kind}"] = _fused(spec, qkv)
            found[f"{here}attention.dense.{kind}"] = _needed(weights, f"{there}self_attn.o_proj.{kind}")
        for kind in ("weight", *(["bias"] if spec.bias_in_mlp else [])):
            halves = [_needed(weights, f"{there}mlp.{name}_proj.{kind}") for name in ("up", "gate")]
            found[f"{here}mlp.linear1.{kind}"] = stacked(halves)
            found[f"{here}mlp.linear2.{kind}"] = _needed(weights, f"{there}mlp.down_proj.{kind}")
    return found


FAMILIES = (
    Family("gpt_neox", "GPTNeoXForCausalLM", _neox_obstacles, _neox_config, _neox_export, _neox_keys, _neox_take),
    Family("llama", "LlamaForCausalLM", _llama_obstacles, _llama_config, _llama_export, _llama_keys, _llama_take),
    Family(
        "mistral", "MistralForCausalLM", _mistral_obstacles, _mistral_config, _llama_export, _mistral_keys, _llama_take
    ),
)
