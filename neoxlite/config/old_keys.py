"""Keys of earlier GPT-NeoX releases, put into today's words.

Each of them was removed or renamed between 2021 and ea7aefd8 (2026); GPT-NeoX itself now refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from neoxlite.config.keys import Fate, OldKey, key_table, old_key_table
from neoxlite.config.overrides import default_block
from neoxlite.config.reader import Entry, Place
from neoxlite.config.values import is_beta, plain, shown
from neoxlite.errors import ConfigError

_GATED_BY = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "relu": "reglu"}
_BETAS = ("adam_beta1", "adam_beta2")
_ADAM = (*_BETAS, "adam_eps")
_OLD = "a key of an earlier GPT-NeoX release"

# Of the defaults that changed since v1.0, those that train another model; a file of that time relies on them silently.
_CHANGED_DEFAULTS = ("gradient_clipping", "attention_dropout", "hidden_dropout", "weight_decay")
_OF_BLENDS = ("weighted_sampler_alpha",)


def modernise(entries: dict[str, Entry]) -> tuple[dict[str, Entry], list[str]]:
    """Return the entries in today's keys, and one warning for each old key.

    Raises:
        ConfigError: an old key and the new one are both given, or the old one asks for maths that neoxlite has not.
    """
    result = dict(entries)
    warnings: list[str] = []
    for name, old in old_key_table().items():
        if name in entries and name not in _ADAM:
            entry = result.pop(name)
            warnings.append(f"{entry.where}: {name} is {_OLD}: {_take(old, entry, result)}")
    _adam_params(result, warnings)
    _row_parallel_head(result, warnings)
    if any(name in entries and _precedes_bf16(old) for name, old in old_key_table().items()):
        _bfloat16_type(result, warnings)
    if warnings:
        table = key_table()
        relied_on = (*_CHANGED_DEFAULTS, *(_OF_BLENDS if _is_true("weight_by_num_documents", result) else ()))
        changed = [f"{name} {table[name].default_v1}" for name in relied_on if name not in result]
        if changed:
            warnings.append(
                f"the files look like an earlier release's; these defaults were others then: {', '.join(changed)}"
            )
    return result, warnings


def _is_true(name: str, entries: dict[str, Entry]) -> bool:
    return name in entries and entries[name].value is True


def _take(old: OldKey, entry: Entry, result: dict[str, Entry]) -> str:
    """Put what ``old`` meant into ``result``, and return what was done."""
    match old.fate:
        case Fate.RENAMED:
            _put(old.instead, old.name, entry.value, entry, result)
            return f"taken as {old.instead}"
        case Fate.TRANSLATED:
            return _TRANSLATIONS[old.name](old.name, entry, result)
        case Fate.DROPPED:
            return f"without effect, as it was there; write {old.instead} if you mean it" if old.instead else "ignored"
        case Fate.OFF:
            return _must_be_off(old, entry)


def _put(new: str, old: str, value: Any, entry: Entry, result: dict[str, Entry]) -> None:
    if new in result:
        raise ConfigError(
            f"{old} ({entry.where}) is the old name of {new}, which is given too ({result[new].where})",
            hint=f"keep {new} and remove {old}",
        )
    result[new] = _of_old_key(entry, value)


def _of_old_key(entry: Entry, value: Any) -> Entry:
    """Return an entry of a key of today whose messages name the old one, which the user wrote."""
    return replace(entry, value=value, place=replace(entry.place, old_key=plain(entry.spelling)))


def _must_be_off(old: OldKey, entry: Entry) -> str:
    if entry.value in (None, False, old.off):
        return "off, ignored"
    raise ConfigError(
        f"{entry.where}: {old.name}: {shown(entry.value)}: neoxlite has not {old.description}",
        hint=f"remove {old.name} if you can do without it",
    )


def _one_path(key: str, entry: Entry, result: dict[str, Entry]) -> str:
    new = old_key_table()[key].instead
    _put(new, key, [entry.value], entry, result)
    return f"taken as {new}: [{entry.value}]"


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
    """``mlp_type: llama`` was a gated MLP without biases, of its own width (megatron/model/transformer.py in 2023)."""
    if entry.value == "regular":
        return "ignored"
    if entry.value != "llama":
        raise ConfigError(
            f"{entry.where}: mlp_type: {shown(entry.value)} is not known", hint="use activation: gelu or swiglu"
        )
    given = result.get("activation")
    word = str(given.value).lower() if given is not None else "gelu"  # the default of activation
    if given is not None and word not in _GATED_BY:
        raise ConfigError(
            f"{given.where}: activation: {shown(given.value)} has no gated form, which mlp_type: llama asks for",
            hint=f"use one of: {', '.join(_GATED_BY)}",
        )
    size = 3 * _llama_width(entry, result)
    of_type = _of_old_key(entry, None)
    result["activation"] = replace(given or of_type, value=_GATED_BY[word])
    result["intermediate_size"] = replace(result.get("intermediate_size", of_type), value=size)
    taken = [f"activation: {_GATED_BY[word]}", f"intermediate_size: {size} (three times the width)"]
    if "use_bias_in_mlp" not in result:
        result["use_bias_in_mlp"] = replace(of_type, value=False)
        taken.append("use_bias_in_mlp: false")
    return f"taken as {', '.join(taken)}"


def _llama_width(entry: Entry, result: dict[str, Entry]) -> int:
    """Return the width of each matrix: intermediate_size, else 8/3 hidden sizes up to a multiple of 256.

    Since 2024-09 intermediate_size is taken as three times as much, as if there were no gate.
    """
    given = result.get("intermediate_size", result.get("hidden_size"))
    size = given.value if given is not None else None
    if not isinstance(size, int) or isinstance(size, bool):
        raise ConfigError(
            f"{entry.where}: mlp_type: llama needs hidden_size, a whole number, in the files",
            hint="write activation: swiglu, use_bias_in_mlp: false and intermediate_size: three times the width",
        )
    return size if "intermediate_size" in result else -(-(size * 8 // 3) // 256) * 256


def _save_iters(key: str, entry: Entry, result: dict[str, Entry]) -> str:
    """It was computed from checkpoint_factor and extra_save_iters, so that what a file said had no effect."""
    iterations = entry.value if isinstance(entry.value, list) else [entry.value]
    _put("extra_save_iters", key, iterations, entry, result)
    return f"taken as extra_save_iters: {shown(iterations)}"


_TRANSLATIONS: dict[str, Callable[[str, Entry, dict[str, Entry]], str]] = {
    "train_data_path": _one_path,
    "valid_data_path": _one_path,
    "test_data_path": _one_path,
    "geglu": _geglu,
    "openai_gelu": _openai_gelu,
    "mlp_type": _mlp_type,
    "save_iters": _save_iters,
}


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
    places: dict[str, Place] = {}
    if "adam_eps" in old:
        new["eps"] = _given("adam_eps", old)
        places["params.eps"] = _of_old_key(old["adam_eps"], None).place
    betas = [key for key in _BETAS if key in old]
    if betas:
        new["betas"] = [_given(key, old) for key in _BETAS]
        wrong = [key for key in betas if not is_beta(_given(key, old))]
        places["params.betas"] = _of_old_key(old[(wrong or betas)[0]], None).place
    for name in new:
        if name in params:
            raise ConfigError(
                f"{', '.join(old)} ({first.where}) and optimizer.params.{name} ({optimizer.where}) are both given",
                hint=f"keep optimizer.params.{name}",
            )
    result["optimizer"] = replace(
        optimizer,
        value={**block, "params": {**params, **new}},
        inner={**optimizer.inner, **places},
    )
    warnings.extend(f"{entry.where}: {key} is {_OLD}: taken into optimizer.params" for key, entry in old.items())


def _given(key: str, old: dict[str, Entry]) -> Any:
    """Return a key's value, or the default that it had where it is null or missing."""
    value = old[key].value if key in old else None
    return old_key_table()[key].off if value is None else value


def _row_parallel_head(result: dict[str, Entry], warnings: list[str]) -> None:
    """``output_layer_parallelism: row`` was v1.0's default; how the head is cut does not change what it computes."""
    entry = result.get("output_layer_parallelism")
    if entry is not None and entry.value == "row":
        result["output_layer_parallelism"] = replace(entry, value="column")
        warnings.append(
            f"{entry.where}: output_layer_parallelism: row is of an earlier release; the head is cut by column"
        )


def _precedes_bf16(old: OldKey) -> bool:
    """Tell whether GPT-NeoX had dropped ``old`` when the bf16 block came, in May 2023."""
    return not old.removed[0].isdigit() or old.removed < "2023-05"


def _bfloat16_type(result: dict[str, Entry], warnings: list[str]) -> None:
    """In such a file ``fp16.type: bfloat16`` is the precision; a file of today means fp16, whatever the type says."""
    entry = result.get("fp16")
    block = entry.value if entry is not None else None
    if (
        entry is None
        or not isinstance(block, dict)
        or block.get("type") != "bfloat16"
        or block.get("enabled") is not True
    ):
        return
    if "bf16" in result:
        return
    result["fp16"] = replace(entry, value={**block, "enabled": False})
    result["bf16"] = replace(entry, value={"enabled": True}, inner={})
    warnings.append(
        f"{entry.where}: fp16 with type: bfloat16 is of an earlier release: taken as bf16: {{enabled: true}}"
    )
