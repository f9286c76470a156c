"""Keys of earlier GPT-NeoX releases, put into today's words.

Each of them was removed or renamed between v1.0 (2022) and ea7aefd8 (2026); GPT-NeoX itself now refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from neoxlite.config.overrides import default_block
from neoxlite.config.reader import Entry
from neoxlite.config.values import shown
from neoxlite.errors import ConfigError

_RENAMED = {
    "save_interval": "checkpoint_factor",
    "save_iters": "extra_save_iters",
    "gas": "gradient_accumulation_steps",
    "label_data_paths": "train_label_data_paths",
    "slurm_comment": "comment",
}
_ONE_PATH = {f"{part}_data_path": f"{part}_data_paths" for part in ("train", "valid", "test")}
_ADAM = {"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8}  # with the defaults they had
_OLD = "a key of an earlier GPT-NeoX release"

# Without effect on what is computed; the value does not matter.
_DROPPED = frozenset(
    (
        "cpu_optimizer",
        "cpu_torch_adam",
        "zero_allow_untested_optimizer",
        "detect_nvlink_pairs",
        "distribute_checkpointed_activations",
        "half_precision",
        "genfile",
        "greedy",
        "out_seq_length",
        "max_tokens",
        "only_default_arguments",
    )
)
# Key -> what it switched on, for the keys that change the maths unless they are off.
_MUST_BE_OFF = {
    "reset_attention_mask": "attention that stops at document borders",
    "reset_position_ids": "positions counted from each document's start",
    "apply_residual_connection_post_layernorm": "residuals taken after the normalisation",
    "sparsity": "sparse attention",
    "num_experts": "a mixture of experts",
    "onebitadam": "1-bit Adam",
    "sm3": "the SM3 optimiser",
    "momentum": "an optimiser with momentum other than Adam",
}
_OFF: dict[str, tuple[Any, ...]] = {"sparsity": ("none",), "num_experts": (1,), "momentum": (0.0,)}

# Defaults that changed between v1.0 and ea7aefd8: a file of that time relies on the old ones without saying so.
_CHANGED_DEFAULTS = {
    "gradient_clipping": 0.0,
    "attention_dropout": 0.1,
    "hidden_dropout": 0.1,
    "weight_decay": 0.01,
}


def modernise(entries: dict[str, Entry]) -> tuple[dict[str, Entry], list[str]]:
    """Return the entries in today's keys, and one warning for each old key.

    Raises:
        ConfigError: an old key and the new one are both given, or the old one asks for maths that neoxlite has not.
    """
    result = dict(entries)
    warnings: list[str] = []
    for key in list(entries):
        handler = _handler(key)
        if handler is None:
            continue
        entry = result.pop(key)
        warnings.append(f"{entry.where}: {key} is {_OLD}: {handler(key, entry, result)}")
    _adam_params(result, warnings)
    _row_parallel_head(result, warnings)
    if warnings:
        changed = [f"{key} {old}" for key, old in _CHANGED_DEFAULTS.items() if key not in result]
        if changed:
            warnings.append(
                f"the files look like an earlier release's; these defaults were others then: {', '.join(changed)}"
            )
    return result, warnings


_Handler = Callable[[str, Entry, dict[str, Entry]], str]


def _handler(key: str) -> _Handler | None:
    if key in _RENAMED:
        return _rename
    if key in _ONE_PATH:
        return _one_path
    if key in _DROPPED:
        return _drop
    if key in _MUST_BE_OFF:
        return _must_be_off
    return {"geglu": _geglu, "openai_gelu": _openai_gelu, "mlp_type": _mlp_type}.get(key)


def _put(new: str, old: str, value: Any, entry: Entry, result: dict[str, Entry]) -> None:
    if new in result:
        raise ConfigError(
            f"{old} ({entry.where}) is the old name of {new}, which is given too ({result[new].where})",
            hint=f"keep {new} and remove {old}",
        )
    result[new] = replace(entry, value=value)


def _rename(key: str, entry: Entry, result: dict[str, Entry]) -> str:
    _put(_RENAMED[key], key, entry.value, entry, result)
    return f"taken as {_RENAMED[key]}"


def _one_path(key: str, entry: Entry, result: dict[str, Entry]) -> str:
    _put(_ONE_PATH[key], key, [entry.value], entry, result)
    return f"taken as {_ONE_PATH[key]}: [{entry.value}]"


def _drop(key: str, entry: Entry, result: dict[str, Entry]) -> str:
    return "ignored"


def _must_be_off(key: str, entry: Entry, result: dict[str, Entry]) -> str:
    if entry.value in (None, False, *_OFF.get(key, ())):
        return "off, ignored"
    raise ConfigError(
        f"{entry.where}: {key}: {shown(entry.value)}: neoxlite has not {_MUST_BE_OFF[key]}",
        hint=f"remove {key} if you can do without it",
    )


def _geglu(key: str, entry: Entry, result: dict[str, Entry]) -> str:
    if not entry.value:
        return "off, ignored"
    _put("activation", key, "geglu", entry, result)
    return "taken as activation: geglu"


def _openai_gelu(key: str, entry: Entry, result: dict[str, Entry]) -> str:
    if not entry.value:
        return "off, ignored"
    _put("bias_gelu_fusion", key, True, entry, result)
    return "taken as bias_gelu_fusion: true, the same approximation by tanh"


def _mlp_type(key: str, entry: Entry, result: dict[str, Entry]) -> str:
    if entry.value == "regular":
        return "ignored"
    if entry.value != "llama":
        raise ConfigError(
            f"{entry.where}: mlp_type: {shown(entry.value)} is not known", hint="use activation: gelu or swiglu"
        )
    _put("activation", key, "swiglu", entry, result)
    if "intermediate_size" in result and isinstance(result["intermediate_size"].value, int):
        # It was the width itself; since 2024-09 two thirds of it are taken for both halves: three times as much.
        width = result["intermediate_size"]
        result["intermediate_size"] = replace(width, value=3 * width.value)
        return f"taken as activation: swiglu, intermediate_size: {3 * width.value} (three times the old meaning)"
    return "taken as activation: swiglu"


def _adam_params(result: dict[str, Entry], warnings: list[str]) -> None:
    """Move ``adam_beta1``, ``adam_beta2`` and ``adam_eps`` into ``optimizer.params``."""
    old = {key: result.pop(key) for key in _ADAM if key in result}
    if not old:
        return
    first = next(iter(old.values()))
    optimizer = result.get("optimizer", replace(first, value=default_block("optimizer")))
    block = optimizer.value
    params = block.get("params") if isinstance(block, dict) else None
    if not isinstance(params, dict):
        return  # the optimizer block is damaged: its own check says how
    new: dict[str, Any] = {}
    if "adam_eps" in old:
        new["eps"] = old["adam_eps"].value
    if old.keys() & {"adam_beta1", "adam_beta2"}:
        new["betas"] = [old[key].value if key in old else _ADAM[key] for key in ("adam_beta1", "adam_beta2")]
    for name in new:
        if name in params:
            raise ConfigError(
                f"{', '.join(old)} ({first.where}) and optimizer.params.{name} ({optimizer.where}) are both given",
                hint=f"keep optimizer.params.{name}",
            )
    result["optimizer"] = replace(optimizer, value={**block, "params": {**params, **new}})
    warnings.extend(f"{entry.where}: {key} is {_OLD}: taken into optimizer.params" for key, entry in old.items())


def _row_parallel_head(result: dict[str, Entry], warnings: list[str]) -> None:
    """``output_layer_parallelism: row`` was v1.0's default; how the head is cut does not change what it computes."""
    entry = result.get("output_layer_parallelism")
    if entry is not None and entry.value == "row":
        result["output_layer_parallelism"] = replace(entry, value="column")
        warnings.append(
            f"{entry.where}: output_layer_parallelism: row is of an earlier release; the head is cut by column"
        )
