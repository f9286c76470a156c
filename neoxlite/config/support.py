"""Which of the given keys neoxlite acts on: what it ignores, and what it cannot train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neoxlite.config.keys import Key, Support, key_table
from neoxlite.config.reader import Entry
from neoxlite.config.values import shown

_ATTENTION = ("global", "flash")  # flash computes what global does
_OPTIMIZERS = ("adam", "adamw")  # GPT-NeoX's Adam is AdamW
_OPTIMIZER_PARAMS = frozenset(("lr", "betas", "eps"))
_EXTRA_ARGS = "deepspeed_extra_args"


def _is_set(key: Key, value: Any) -> bool:
    """Tell whether a value asks for something else than the default does."""
    if isinstance(value, dict) and value.get("enabled") is False:
        return False
    return value != key.default and value not in (None, [], {})


def ignored_keys(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> list[str]:
    """Return warnings, one for the ignored keys and one for the derived ones, each naming the keys that are set."""
    ignored, derived = [], []
    for name, entry in entries.items():
        key = key_table()[name]
        if key.support is Support.IGNORED and _is_set(key, values[name]):
            ignored.append(name)
        elif key.support is Support.DERIVED and entry.value not in (None, values[name]):
            derived.append(name)
    ignored += [f"{_EXTRA_ARGS}.{name}" for name in values[_EXTRA_ARGS] or {} if _extra_is_ignored(name)]
    warnings = []
    if ignored:
        warnings.append(f"without effect in neoxlite: {', '.join(ignored)}")
    if derived:
        warnings.append(f"computed from other keys, the given value is not used: {', '.join(derived)}")
    return warnings


def _extra_is_ignored(name: str) -> bool:
    key = key_table().get(name)
    return key is not None and key.support is Support.IGNORED


def unsupported_keys(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> list[str]:
    """Return one line for each thing neoxlite cannot train, with its place."""
    reasons: dict[str, str] = {}
    for name, key in key_table().items():
        value = values[name]
        if key.support is Support.REFUSED and _is_set(key, value) and not _is_harmless(name, values):
            reasons[name] = f"{name}: {shown(value)} is not supported by neoxlite"
        elif key.accepts and value not in key.accepts:
            reasons[name] = f"{name}: {value} is not supported by neoxlite (it has {', '.join(key.accepts)})"
    kinds = sorted(set(values["attention_config"]) - set(_ATTENTION))
    if kinds:
        reasons["attention_config"] = f"attention_config: {', '.join(kinds)} is not supported by neoxlite"
    reasons.update(_optimizer_reasons(values["optimizer"]))
    return [f"{entries[name].where}: {reason}" if name in entries else reason for name, reason in reasons.items()]


def _is_harmless(name: str, values: Mapping[str, Any]) -> bool:
    """Tell whether a refused key has a value that means what neoxlite does anyway."""
    return name == _EXTRA_ARGS and all(_extra_is_ignored(key) for key in values[_EXTRA_ARGS] or {})


def _optimizer_reasons(block: Mapping[str, Any]) -> dict[str, str]:
    if block["type"].lower() not in _OPTIMIZERS:
        return {"optimizer": f"optimizer.type: {block['type']} is not supported by neoxlite (it has Adam)"}
    unknown = [str(name) for name in block["params"] if name not in _OPTIMIZER_PARAMS]
    if unknown:
        return {
            "optimizer": f"optimizer.params: {', '.join(unknown)} is not supported by neoxlite (it has lr, betas, eps)"
        }
    return {}
