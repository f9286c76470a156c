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
_PREFIX = "tag:yaml.org,2002:"
_PATTERNS = {f"{_PREFIX}{name}": re.compile(pattern) for name, pattern, _ in _SCALARS if name != "merge"}
_TAGS = {*_PATTERNS, *(f"{_PREFIX}{name}" for name in ("str", "seq", "map"))}
_MAX_DIGITS = 300  # more do not fit a float, and Python prints no number of 4,300


class CoreLoader(_Base):  # type: ignore[misc] # the C loader where PyYAML was built with it, else the Python one
    """`yaml.SafeLoader` with the scalars of the core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own name
    # Not those of dates, binary data, sets and pairs: only the core schema's tags are read.
    yaml_constructors = {  # noqa: RUF012
        tag: make for tag, make in _Base.yaml_constructors.items() if tag is None or tag in _TAGS
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Make a value of ``node``; a tag that somebody wrote (``!!int x``) must fit the text. Raises YAMLError."""
        pattern = _PATTERNS.get(node.tag)
        if pattern is not None and isinstance(node, yaml.ScalarNode):
            if not pattern.fullmatch(node.value):
                raise _refusal(f"{node.value[:60]!r} is not of type {node.tag.removeprefix(_PREFIX)}", node)
            if node.tag == f"{_PREFIX}int" and len(node.value) > _MAX_DIGITS:
                raise _refusal(f"a number of {len(node.value)} digits", node)
        return super().construct_object(node, deep=deep)


def _refusal(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


for _name, _pattern, _first in _SCALARS:
    CoreLoader.add_implicit_resolver(f"{_PREFIX}{_name}", re.compile(rf"{_pattern}\Z"), _first)
