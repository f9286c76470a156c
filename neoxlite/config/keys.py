"""The key table: every argument of GPT-NeoX, its type, its default, and what neoxlite does with it.

The table is data, ``keys.tsv``, one line a key, in the order of GPT-NeoX's own declarations (EleutherAI/gpt-neox at
ea7aefd8f8e183256992d9fede4d7c71a46d67a5, megatron/neox_arguments/{deepspeed_args,neox_args}.py).
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any


class Support(Enum):
    """What neoxlite does with a key."""

    USED = "used"
    """Read and acted upon, for the values of ``Key.accepts`` where that is given."""
    IGNORED = "ignored"
    """Accepted: the maths are the same without it. A warning names it when it is not at its default."""
    REFUSED = "refused"
    """Another value than the default would change the maths, the data or what is saved, and neoxlite does not do it."""
    DERIVED = "derived"
    """Computed from other keys; a value in a file has no effect, as in GPT-NeoX, and a warning says so."""


@dataclass(frozen=True)
class Key:
    """One line of the table.

    Attributes:
        type: ``int``, ``float``, ``number`` (either), ``bool``, ``str``, ``dict``, ``list``, ``any`` or ``choice``.
        choices: the words GPT-NeoX accepts, for ``choice``.
        accepts: the values neoxlite can run, where it is not all of them.
    """

    name: str
    type: str
    choices: tuple[str, ...]
    default: Any
    support: Support
    accepts: tuple[str, ...]
    group: str
    description: str


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split("|")) if text else ()


@cache
def key_table() -> dict[str, Key]:
    """Return all 321 keys by name."""
    text = resources.files("neoxlite.config").joinpath("keys.tsv").read_text(encoding="utf-8")
    table = {}
    for line in text.splitlines()[1:]:
        name, kind, default, support, accepts, group, description = line.split("\t")
        kind, _, choices = kind.partition(":")
        table[name] = Key(
            name, kind, _words(choices), json.loads(default), Support(support), _words(accepts), group, description
        )
    return table


def near_names(name: str, count: int = 3) -> list[str]:
    """Return up to ``count`` keys that look like ``name``, the likeliest first."""
    return difflib.get_close_matches(name.replace("-", "_"), list(key_table()), n=count, cutoff=0.7)
