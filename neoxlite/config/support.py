"""Which of the given keys neoxlite acts on: what it ignores, and what it cannot train."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from neoxlite.config.blocks import leaves, unknown_in_blocks
from neoxlite.config.keys import Key, Support, Tier, block_table, key_table
from neoxlite.config.reader import Entry
from neoxlite.config.values import shown

_ATTENTION = ("global", "flash")  # flash computes what global does
_EXTRA_ARGS = "deepspeed_extra_args"
# Where the ranks come from: under `neoxlite launch` from itself, whatever these say.
_OF_RANKS = ("deepspeed_mpi", "deepspeed_slurm", "force_multi")


def _is_set(key: Key, value: Any) -> bool:
    """Tell whether a value asks for something else than the default does."""
    if isinstance(value, dict) and value.get("enabled") is False:
        return False
    return value != key.default and value not in (None, [], {})


def _known_leaves(values: Mapping[str, Any]) -> Iterator[tuple[Key, Any]]:
    return ((block_table()[dotted], value) for dotted, value in leaves(values) if dotted in block_table())


def ignored_keys(values: Mapping[str, Any], entries: Mapping[str, Entry], *, launched: bool) -> list[str]:
    """Return at most four warnings, which name keys that are set and have no part in training.

    They are ignored, read by ``neoxlite launch`` alone, derived, or unknown in a block. In a run that it has
    ``launched`` what is about its ranks had its part.
    """
    table = key_table()
    given = [(table[name], values[name]) for name in entries if not (launched and _is_of_launching(table[name]))]
    ignored = [
        (key.name, key.instead)
        for key, value in (*given, *_known_leaves(values))
        if key.support is Support.IGNORED and _is_set(key, value)
    ]
    ignored += [
        (f"{_EXTRA_ARGS}.{name}", table[name].instead) for name in values[_EXTRA_ARGS] or {} if _extra_is_ignored(name)
    ]
    derived = [
        key.name
        for key, value in given
        if key.support is Support.DERIVED and entries[key.name].value not in (None, value)
    ]
    launch = [key.name for key, value in given if key.support is Support.LAUNCH and _is_set(key, value)]
    warnings = {
        "without effect in neoxlite": _by_reason(ignored),
        "read by neoxlite launch, not by training": launch,
        "computed from other keys, the given value is not used": derived,
        "not known to neoxlite, without effect": unknown_in_blocks(values),
    }
    return [f"{text}: {', '.join(names)}" for text, names in warnings.items() if names]


def _is_of_launching(key: Key) -> bool:
    return key.support is Support.LAUNCH or key.name in _OF_RANKS


def _by_reason(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names of (name, reason) with each reason once, behind all that it holds for."""
    groups: dict[str, list[str]] = {}
    for name, reason in pairs:
        groups.setdefault(reason, []).append(name)
    return [f"{', '.join(names)} ({reason})" if reason else ", ".join(names) for reason, names in groups.items()]


def _extra_is_ignored(name: str) -> bool:
    key = key_table().get(name)
    return key is not None and key.support is Support.IGNORED


def unsupported_keys(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return {key: what neoxlite cannot train about it, with its place}."""
    reasons: dict[str, str] = {}
    pairs = ((key, values[name]) for name, key in key_table().items())
    for key, value in (*pairs, *_known_leaves(values)):
        if key.support is Support.REFUSED and _is_set(key, value) and not _is_harmless(key.name, values):
            exotic = " (an exotic key)" if key.tier is Tier.EXOTIC else ""
            reasons[key.name] = f"{key.name}: {shown(value)}{exotic} is not supported by neoxlite"
        elif key.accepts and value is not None and value not in key.accepts:
            reasons[key.name] = f"{key.name}: {value} is not supported by neoxlite (it has {', '.join(key.accepts)})"
    kinds = sorted(set(values["attention_config"]) - set(_ATTENTION))
    if kinds:
        reasons["attention_config"] = f"attention_config: {', '.join(kinds)} is not supported by neoxlite"
    unknown = [dotted for dotted, _ in leaves(values) if _is_unknown_parameter(dotted)]
    if unknown:
        reasons[unknown[0]] = f"{', '.join(unknown)} is not supported by neoxlite (it has lr, betas, eps)"
    return {name: _placed(name, reason, entries) for name, reason in reasons.items()}


def _placed(name: str, reason: str, entries: Mapping[str, Entry]) -> str:
    top, _, path = name.partition(".")
    if top not in entries:
        return reason
    place = entries[top].place_of(path) or entries[top].place
    return f"{place.where}: {reason}"


def _is_unknown_parameter(dotted: str) -> bool:
    return dotted.startswith("optimizer.") and dotted not in block_table()


def _is_harmless(name: str, values: Mapping[str, Any]) -> bool:
    """Tell whether a refused key has a value that means what neoxlite does anyway."""
    return name == _EXTRA_ARGS and all(_extra_is_ignored(key) for key in values[_EXTRA_ARGS] or {})


def way_out(name: str) -> str:
    """Return what to do about a key that cannot be trained."""
    key = key_table().get(name) or block_table().get(name)
    if key is None or not (key.instead or key.accepts):
        return f"remove {name}, or train with a program that has it"
    return key.instead or f"use {' or '.join(key.accepts)}"
