"""The key table for readers: one line a key for a terminal, tables of Markdown for the documentation."""

from __future__ import annotations

import fnmatch
import itertools
import json
import re
from collections.abc import Iterable, Iterator

from neoxlite.common.near import near
from neoxlite.config.keys import Fate, Key, OldKey, Support, block_table, key_table, near_names, old_key_table
from neoxlite.errors import ConfigError

_BEGIN = "<!-- The tables from here on are written by: neoxlite config keys --markdown docs/configuration.md -->"
_END = "<!-- end of the tables -->"
_PARTS = re.compile("[._-]")
_SHOWN = 4
_GROUPS = {
    "DeepspeedConfig": "Batch, optimiser and DeepSpeed",
    "DeepspeedRunner": "Launching",
    "Parallelism": "Parallelism",
    "Model": "Model",
    "Optimizer": "Derived from the optimizer and ZeRO blocks",
    "LRScheduler": "Learning rate",
    "Logging": "Logging",
    "Other": "Other",
    "Tokenizer": "Tokenizer",
    "Training": "Data, loop and checkpoints",
    "Textgen": "Text generation",
    "MoE": "Mixture of experts",
    "Blocks": "Inside blocks",
}


def find_keys(pattern: str | None) -> list[Key | OldKey]:
    """Return the keys whose name matches ``pattern``: a part of the name, or with ``*`` and ``?`` the whole of it."""
    everything: list[Key | OldKey] = [
        *key_table().values(),
        *block_table().values(),
        *old_key_table().values(),
    ]
    if pattern is None:
        return everything
    pattern = pattern.replace("-", "_")
    wild = pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*"
    return [key for key in everything if fnmatch.fnmatchcase(key.name, wild)]


def meant(pattern: str) -> str | None:
    """Return a question with the keys that a pattern, which matches none, may have meant; None if none is like it."""
    # A single word is compared with parts of names first: of whole names "iteration" is most like "atention".
    known = () if _PARTS.search(pattern) else (part for key in find_keys(None) for part in _PARTS.split(key.name))
    having = [key.name for part in near(pattern, known, most=1) for key in find_keys(part)]
    if having[1:]:
        return f"did you mean {', '.join(having[:_SHOWN])}{', ...' if having[_SHOWN:] else ''}?"
    names = near_names(pattern) or having
    return f"did you mean {' or '.join(names)}?" if names else None


def kind(key: Key) -> str:
    """Return the type, the words of a choice, and the range: ``float, from 0 to 1``."""
    text = " / ".join(key.choices) if key.choices else key.type
    return f"{text}, {key.range.words}" if key.range else text


def standing(key: Key | OldKey) -> str:
    """Return what neoxlite does with a key, and what to do where that is nothing."""
    if isinstance(key, OldKey):
        return {
            Fate.RENAMED: f"taken as {key.instead}",
            Fate.TRANSLATED: f"taken as {key.instead}",
            Fate.DROPPED: "ignored",
            Fate.OFF: "refused unless off",
        }[key.fate]
    text = {Support.GENERATE: "text generation", Support.LAUNCH: "`neoxlite launch`"}.get(
        key.support, key.support.value
    )
    if key.accepts:
        return f"{text}: {', '.join(key.accepts)}"
    return f"{text}: {key.instead}" if key.instead else text


def json_row(key: Key | OldKey) -> dict[str, object]:
    """Return all that is known of a key, for programs."""
    if isinstance(key, OldKey):
        return {"name": key.name, "removed": key.removed, "support": standing(key), "description": key.description}
    return {
        "name": key.name,
        "type": key.type,
        "choices": list(key.choices),
        "range": key.range.json_schema if key.range else {},
        "default": key.default,
        "tier": key.tier.value,
        "support": key.support.value,
        "accepts": list(key.accepts),
        "instead": key.instead,
        "since": key.since,
        "group": key.group,
        "description": key.description,
    }


def text_row(key: Key | OldKey) -> tuple[str, str, str, str]:
    """Return name, type and default, tier and standing, meaning."""
    if isinstance(key, OldKey):
        return key.name, f"removed {key.removed}", standing(key), key.description
    return key.name, f"{kind(key)} = {json.dumps(key.default)}", f"{key.tier.value}, {standing(key)}", key.description


def renewed(page: str) -> str:
    """Return ``page`` with the tables between its two marks as they are today.

    Raises:
        ConfigError: the marks are not there.
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ConfigError("the page has no place for the tables", hint=f"put a line {_BEGIN} and a line {_END} into it")
    return f"{before}{begin}\n\n{markdown()}\n{end}{after}"


def markdown() -> str:
    """Return the tables of all keys, one a group, the removed ones last."""
    keys = (*key_table().values(), *block_table().values())
    parts = [
        _section(_GROUPS[group], list(members)) for group, members in itertools.groupby(keys, lambda key: key.group)
    ]
    return "\n".join([*parts, _removed(old_key_table().values())])


def _section(title: str, keys: Iterable[Key]) -> str:
    head = ["key", "type", "default", "tier", "in neoxlite", "since", "meaning"]
    return _table(title, head, (_cells(key) for key in keys))


def _cells(key: Key) -> list[str]:
    meaning = f"{key.description} (in v1.0 the default was `{key.default_v1}`)" if key.default_v1 else key.description
    return [
        f"`{key.name}`",
        kind(key),
        f"`{json.dumps(key.default)}`",
        key.tier.value,
        standing(key),
        key.since,
        meaning,
    ]


def _removed(keys: Iterable[OldKey]) -> str:
    head = ["key", "removed", "in neoxlite", "meaning"]
    rows = ([f"`{key.name}`", key.removed, standing(key), key.description] for key in keys)
    return _table("Keys of earlier releases", head, rows)


def _table(title: str, head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join([f"## {title}", "", *_lines(head, rows), ""])


def _lines(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
