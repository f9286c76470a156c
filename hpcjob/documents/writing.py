"""A value as YAML on one line, as an option takes it and a person pastes it."""

from __future__ import annotations

import json
from typing import Any

import yaml

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


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
