"""``--set a.b=c``: values given on the command line, which win over the files."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from neoxlite.config.reader import YAML_ERRORS, Entry, Place
from neoxlite.config.values import type_name
from neoxlite.errors import ConfigError

SOURCE = Place("--set", None)

# What a dotted override starts from when no file gives the block: GPT-NeoX's defaults of these two.
_DEFAULT_BLOCKS: dict[str, dict[str, Any]] = {
    "optimizer": {"type": "Adam", "params": {"lr": 0.001}},
    "zero_optimization": {
        "stage": 0,
        "allgather_partitions": True,
        "reduce_scatter": True,
        "allgather_bucket_size": 500_000_000,
        "overlap_comm": False,
        "reduce_bucket_size": 500_000_000,
        "contiguous_gradients": False,
    },
}


def default_block(key: str) -> dict[str, Any]:
    """Return a copy of what ``key`` is when it is not given: a block, empty for most keys."""
    return copy.deepcopy(_DEFAULT_BLOCKS.get(key, {}))


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Return {dotted key: value} from ``key=value`` words; the value is read as YAML.

    Raises:
        ConfigError: no ``=``, an empty key, or a value that is not YAML.
    """
    result: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {assignment}: not of the form KEY=VALUE", hint="write --set train_iters=100")
        try:
            result[key.strip()] = yaml.safe_load(text)
        except YAML_ERRORS as error:
            raise ConfigError(f"--set {key}: the value {text!r} is not YAML", hint="quote it for YAML") from error
    return result


def apply_overrides(entries: Mapping[str, Entry], overrides: Mapping[str, Any]) -> dict[str, Entry]:
    """Return ``entries`` with ``overrides`` (dotted key -> value) put in; neither argument is changed.

    ``a.b`` replaces one value inside the block ``a``; ``a`` replaces all of it.

    Raises:
        ConfigError: a dotted key goes through something that is not a mapping.
    """
    result = dict(entries)
    for dotted, value in overrides.items():
        top, *path = dotted.split(".")
        if not all((top, *path)):
            raise ConfigError(f"--set {dotted}: an empty key", hint="write --set a.b=VALUE")
        name = top.replace("-", "_")
        if not path:
            result[name] = Entry(value, top, SOURCE)
            continue
        before = result.get(name)
        block = copy.deepcopy(before.value) if before is not None else default_block(name)
        _put(block, path, value, dotted)
        result[name] = Entry(block, top, SOURCE, _inner_places(before, ".".join(path)))
    return result


def _inner_places(before: Entry | None, path: str) -> dict[str, Place]:
    """Return the places inside a block after ``path`` was overridden, with all that is below it."""
    kept = before.inner if before is not None else {}
    return {**{old: place for old, place in kept.items() if not old.startswith(f"{path}.")}, path: SOURCE}


def _put(block: Any, path: list[str], value: Any, dotted: str) -> None:
    for depth, step in enumerate(path):
        if not isinstance(block, dict):
            parent = ".".join(dotted.split(".")[: depth + 1])
            raise ConfigError(
                f"--set {dotted}: {parent} is {type_name(block)}, not a mapping", hint=f"set {parent} as a whole"
            )
        if depth == len(path) - 1:
            block[step] = value
        else:
            block = block.setdefault(step, {})
