"""A value as YAML: on one line, as an option takes it and a person pastes it, or a whole document."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import yaml

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# A path or a name; what YAML may take for a number, a boolean, a comment or a mapping is not among them.
_PLAIN = re.compile(r"[/~A-Za-z_][\w./@+=-]*/[\w./@+=-]*", re.ASCII)


def plain_or_quoted(text: str) -> str:
    """Return ``text`` as a YAML value in a line: as it is where that reads back the same for sure, else in quotes."""
    return text if _PLAIN.fullmatch(text) else one_line(text)


def whole(value: msgspec.Struct) -> str:
    """Return ``value`` as a YAML document, without the keys that have no value."""
    data = _without_none(msgspec.to_builtins(value))
    return str(yaml.safe_dump(data, allow_unicode=True, sort_keys=False, width=120))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value


def one_line(value: Any) -> str:
    """Return ``value`` as one line that YAML 1.1 and 1.2 read alike; JSON's ``6e-05`` would be text in YAML 1.1."""
    if isinstance(value, list):
        return f"[{', '.join(map(one_line, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{one_line(key)}: {one_line(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    text: str = yaml.dump(value, Dumper=_DUMPER)
    return text.removesuffix("\n").removesuffix("\n...")
