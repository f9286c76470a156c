"""What an architecture of transformers is to a conversion, and what its kinds have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from neoxlite.convert.weight import Weight, zeros
from neoxlite.errors import CheckpointError
from neoxlite.model.spec import ModelSpec


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


def common_obstacles(spec: ModelSpec) -> list[str]:
    """Return what no architecture here has, as `Family.obstacles`."""
    return [] if spec.pos_emb == "rotary" else [f"pos_emb: {spec.pos_emb} (it has rotary positions)"]


def window_obstacles(spec: ModelSpec) -> list[str]:
    """Return the window, where it hides something within the model's positions."""
    if spec.window is None or spec.window >= spec.max_position_embeddings - 1:
        return []
    return [f"sliding_window_width: {spec.window} (it sees everything before)"]


def common_config(spec: ModelSpec) -> dict[str, Any]:
    """Return the entries of config.json that all have under the same names."""
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


def common_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of those entries, the inverse of `common_config`. Raises CheckpointError as `number_of`."""
    return {
        "num_layers": number_of(config, "num_hidden_layers"),
        "hidden_size": number_of(config, "hidden_size"),
        "num_attention_heads": number_of(config, "num_attention_heads"),
        "seq_length": number_of(config, "max_position_embeddings"),
        "max_position_embeddings": number_of(config, "max_position_embeddings"),
        "pos_emb": "rotary",
        "no_weight_tying": not config.get("tie_word_embeddings", False),
        "mlp_multiple_of": 1,
    }


def number_of(config: Mapping[str, Any], key: str) -> int:
    """Return a size in config.json. Raises CheckpointError if it is no whole number from 1 up."""
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise CheckpointError(f"config.json: {key} is {value!r}, not a number from 1 up", hint="copy the folder again")
    return value


def float_of(config: Mapping[str, Any], key: str, default: float) -> float:
    """Return a number in config.json, ``default`` where it is left out. Raises CheckpointError if it is none."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CheckpointError(f"config.json: {key} is {value!r}, not a number", hint="copy the folder again")
    return float(value)


def refused(key: str, value: Any, reason: str) -> CheckpointError:
    """Return the error of an entry of config.json that asks for what neoxlite has not."""
    return CheckpointError(
        f"config.json: {key}: {value!r} cannot be read: {reason}", hint="this model is not convertible"
    )


def rope_keys(config: Mapping[str, Any], theta_key: str, share_key: str, share: float) -> dict[str, Any]:
    """Return the rotary keys; transformers 5 keeps them in rope_parameters, earlier ones at the top.

    Raises:
        CheckpointError: scaled frequencies, or a base that GPT-NeoX's integer key cannot hold.
    """
    inner = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(inner, Mapping):
        raise refused("rope_parameters", inner, "it is not a table")
    kind = inner.get("rope_type", inner.get("type", "default"))
    if kind != "default":
        raise refused("rope_scaling", kind, "neoxlite rotates by unscaled frequencies")
    theta = float_of(inner, "rope_theta", float_of(config, theta_key, float_of(config, "rope_theta", 10000.0)))
    if theta != int(theta):
        raise refused(theta_key, theta, "rotary_emb_base is a whole number")
    share = float_of(inner, "partial_rotary_factor", float_of(config, share_key, share))
    return {"rotary_pct": share, "rotary_emb_base": int(theta)}


def outer_names(spec: ModelSpec, embedding: str, norm: str, head: str) -> dict[str, str]:
    """Return our name -> theirs of what is not in a block."""
    kinds = ("scale",) if spec.norm == "rmsnorm" else ("weight", "bias")
    last = spec.num_layers + 3
    names = {"0.word_embeddings.weight": embedding}
    names |= {f"{last}.norm.{kind}": f"{norm}.{'weight' if kind == 'scale' else kind}" for kind in kinds}
    if not spec.tied_head:
        names[f"{last + 1}.final_linear.weight"] = head
    return names


def given_or_zeros(weights: Mapping[str, Weight], name: str, shape: tuple[int, ...], like: Weight) -> Weight:
    """Return a weight; one that the model goes without is zeros, which computes the same."""
    return weights[name] if name in weights else zeros(shape, like.dtype)


def needed(weights: Mapping[str, Weight], name: str) -> Weight:
    """Return a weight that the model cannot go without. Raises CheckpointError if the folder has none of that name."""
    if name not in weights:
        raise CheckpointError(f"the folder has no weight {name}", hint="copy the folder again")
    return weights[name]
