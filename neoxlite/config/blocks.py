"""The keys inside blocks such as ``zero_optimization``, by dotted names."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from neoxlite.config.keys import block_table
from neoxlite.config.reader import Entry
from neoxlite.config.values import plain, shown, typed
from neoxlite.errors import ConfigError

BLOCKS = ("optimizer", "zero_optimization", "fp16", "bf16", "data_types", "checkpoint", "kernels")


def typed_block(name: str, entry: Entry) -> dict[Any, Any]:
    """Return the block of ``entry`` with each known key as the type the table declares; unknown ones as they are.

    Raises:
        ConfigError: another type, beyond the range, or null where a value is needed.
    """
    return _typed(name, entry.value, entry, "")


def _typed(name: str, block: Mapping[Any, Any], entry: Entry, prefix: str) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for word, value in block.items():
        dotted, path = f"{name}.{word}", f"{prefix}{word}"
        key = block_table().get(dotted)
        if key is None:
            result[word] = _typed(dotted, value, entry, f"{path}.") if isinstance(value, dict) else value
            continue
        where = (entry.place_of(path) or entry.place).where
        if value is None and key.default is not None:
            raise ConfigError(f"{where}: {dotted} is null", hint=f"give it a value, or omit it: {key.description}")
        result[word] = typed(key, value, where)
    return result


def leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) for everything in the blocks of ``values``; known mappings are not looked into."""
    for name in BLOCKS:
        yield from _leaves(name, values[name] or {})


def _leaves(name: str, block: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for word, value in block.items():
        dotted = f"{name}.{word}"
        if isinstance(value, dict) and dotted not in block_table():
            yield from _leaves(dotted, value)
        else:
            yield dotted, value


def unknown_in_blocks(values: Mapping[str, Any]) -> list[str]:
    """Return the dotted names that neoxlite does not know, each with a near name; none of the optimizer's."""
    return [
        plain(dotted) + _suggestion(dotted)
        for dotted, _ in leaves(values)
        if dotted not in block_table() and not dotted.startswith("optimizer.")
    ]


def _suggestion(dotted: str) -> str:
    near = difflib.get_close_matches(dotted, list(block_table()), n=1, cutoff=0.8)
    return f" (did you mean {shown(near[0].rpartition('.')[2])}?)" if near else ""
