"""The key table: every key of GPT-NeoX, its type, its default, and what neoxlite does with it.

The table is data, ``keys.tsv``, one line a key: first today's arguments, in the order of GPT-NeoX's own declarations
(EleutherAI/gpt-neox at ea7aefd8f8e183256992d9fede4d7c71a46d67a5, {deepspeed_args,neox_args}.py of
megatron/neox_arguments), then the keys inside their blocks by dotted names, then those that GPT-NeoX had once.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any

from neoxlite.config.ranges import Range


class Support(Enum):
    """What neoxlite does with a key."""

    USED = "used"
    """Read and acted upon, for the values of ``Key.accepts`` where that is given."""
    GENERATE = "generate"
    """A setting of text generation: checked and carried, without a part in training."""
    LAUNCH = "launch"
    """A setting of ``neoxlite launch``: hosts and processes. Training takes its ranks from whatever started it."""
    IGNORED = "ignored"
    """Accepted: the maths are the same without it. A warning names it when it is not at its default."""
    REFUSED = "refused"
    """Another value than the default would change the maths, the data or what is saved, and neoxlite does not do it."""
    DERIVED = "derived"
    """Computed from other keys; a value in a file has no effect, as in GPT-NeoX, and a warning says so."""


class Tier(Enum):
    """How much a key matters to those who train language models."""

    CORE = "core"
    USEFUL = "useful"
    EXOTIC = "exotic"


class Fate(Enum):
    """What is done with a key that GPT-NeoX had once."""

    RENAMED = "renamed"
    """Taken as the key of today's name."""
    TRANSLATED = "translated"
    """Taken as a value of another key."""
    DROPPED = "dropped"
    """Without effect on what is computed; ignored."""
    OFF = "off"
    """Accepted while it is off; what it switched on would change the maths."""


@dataclass(frozen=True)
class Key:
    """A key of today.

    Attributes:
        type: ``int``, ``float``, ``number`` (either), ``bool``, ``str``, ``dict``, ``list``, ``any`` or ``choice``.
        choices: the words GPT-NeoX accepts, for ``choice``.
        range: the numbers that make sense, where there is a limit.
        accepts: the values neoxlite can run, where it is not all of them.
        since: the first release that had it (v1.0, v2.0), else the month it came (2024-09).
        default_v1: the default in v1.0 as JSON, where it was another; else empty.
        instead: what to do where neoxlite refuses it; why it is not needed where neoxlite ignores it.
    """

    name: str
    type: str
    choices: tuple[str, ...]
    default: Any
    range: Range | None
    tier: Tier
    support: Support
    accepts: tuple[str, ...]
    since: str
    default_v1: str
    instead: str
    group: str
    description: str


@dataclass(frozen=True)
class OldKey:
    """A key that GPT-NeoX had once and now refuses.

    Attributes:
        off: the default it had; one that can be switched on is off at this value, at null and at false.
        removed: the month it went (2022-12), or ``before v1.0``.
        instead: the key, or the value of a key, that took its place.
    """

    name: str
    off: Any
    fate: Fate
    removed: str
    instead: str
    description: str


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split("|")) if text else ()


@cache
def _rows() -> list[dict[str, str]]:
    lines = resources.files("neoxlite.config").joinpath("keys.tsv").read_text(encoding="utf-8").splitlines()
    columns = lines[0].split("\t")
    return [dict(zip(columns, line.split("\t"), strict=True)) for line in lines[1:]]


def _key(row: dict[str, str]) -> Key:
    kind, _, choices = row["type"].partition(":")
    return Key(
        name=row["name"],
        type=kind,
        choices=_words(choices),
        default=json.loads(row["default"]),
        range=Range.parse(row["range"]) if row["range"] else None,
        tier=Tier(row["tier"]),
        support=Support(row["support"]),
        accepts=_words(row["accepts"]),
        since=row["since"],
        default_v1=row["default_v1"],
        instead=row["instead"],
        group=row["group"],
        description=row["description"],
    )


def _old_key(row: dict[str, str]) -> OldKey:
    return OldKey(
        row["name"],
        json.loads(row["default"]),
        Fate(row["support"]),
        row["removed"],
        row["instead"],
        row["description"],
    )


@cache
def key_table() -> dict[str, Key]:
    """Return the top-level keys of today by name: GPT-NeoX's 321 and neoxlite's own."""
    return {row["name"]: _key(row) for row in _rows() if not row["removed"] and "." not in row["name"]}


@cache
def block_table() -> dict[str, Key]:
    """Return the known keys inside blocks by dotted name, as ``optimizer.params.lr``."""
    return {row["name"]: _key(row) for row in _rows() if not row["removed"] and "." in row["name"]}


@cache
def old_key_table() -> dict[str, OldKey]:
    """Return the keys of earlier releases by name."""
    return {row["name"]: _old_key(row) for row in _rows() if row["removed"]}


def near_names(name: str, count: int = 3) -> list[str]:
    """Return up to ``count`` keys that look like ``name``, the likeliest first; for an old key the one it became."""
    old = {key.name: key.instead for key in old_key_table().values() if key.fate is Fate.RENAMED}
    near = difflib.get_close_matches(name.replace("-", "_"), [*key_table(), *old], n=count, cutoff=0.7)
    return list(dict.fromkeys(old.get(word, word) for word in near))
