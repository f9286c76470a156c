"""A YAML loader that reads scalars by YAML 1.2's core schema, without the traps of YAML 1.1.

PyYAML follows YAML 1.1, in which ``on``, ``off``, ``yes`` and ``no`` are booleans (also as keys), ``010`` is eight,
``2:12:00:00`` is a base-60 number (475,200 s, not the 216,000 s of two days and twelve hours), ``2024-10-31`` is a
date and ``6e-5`` is text. Here a number with a leading zero, a time and a date stay text, and ``6e-5`` is a number
(https://yaml.org/spec/1.2.2/#103-core-schema).
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_SCALARS = (
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", list("tTfF")),
    ("int", r"(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)", list("-+0123456789")),
    (
        "float",
        r"(?:[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
)


class CoreLoader(_Base):  # type: ignore[misc] # the C loader where PyYAML was built with it, else the Python one
    """`yaml.SafeLoader` with the scalars of the core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own name


for _name, _pattern, _first in _SCALARS:
    CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"{_pattern}\Z"), _first)
