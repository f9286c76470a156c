"""What to say of a file that is no YAML."""

from __future__ import annotations

from pathlib import Path

import yaml

from neoxlite.errors import ConfigError

_ITEM_ENDS = (",", "{", "[")  # what a line of a {...} block ends with, where another item follows
# Marks that look like those of YAML: of word processors, and full-width ones.
_LOOKALIKES = {**dict.fromkeys("\u201c\u201d\uff02", '"'), **dict.fromkeys("\u2018\u2019", "'"), "\uff1a": ":"}
_LOOKALIKES |= {**dict.fromkeys("\uff0c\u3001", ","), "\uff5b": "{", "\uff5d": "}", "\uff3b": "[", "\uff3d": "]"}


def damaged(path: Path, text: str, error: yaml.YAMLError) -> ConfigError:
    """Return the message for a file that is no YAML: the place, the problem, and what is probably missing there."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:  # a character that no YAML file may hold
        return ConfigError(f"{path}: not a YAML file: {str(error).splitlines()[0]}", hint="fix or remove the character")
    lines = text.splitlines() or [""]
    number = min(mark.line, len(lines) - 1)
    problem = getattr(error, "problem", None) or "not YAML"
    return ConfigError(
        f"{path}:{number + 1}: {problem}: {lines[number].strip()[:80]!r}", hint=_hint(lines, number, problem)
    )


def _hint(lines: list[str], number: int, problem: str) -> str:
    """Return what to do about a ``problem`` at ``lines[number]``; mostly a comma is missing, some lines above."""
    if problem.startswith("but found another document"):
        return "a file holds one document: remove the '---', or make two files"
    for at in range(number, max(number - 3, -1), -1):
        line = lines[at].partition("#")[0]
        wrong = next((mark for mark in line if mark in _LOOKALIKES), None)
        if wrong is not None:
            return (
                f"line {at + 1} has {wrong!r}, which is not a mark of YAML: write {_LOOKALIKES[wrong]!r} in its place"
            )
        if line.lstrip().startswith("//") or " //" in line:
            return f"line {at + 1} has //, which begins no comment here: write # in its place"
    above = [at for at in range(number) if lines[at].strip() and not lines[at].lstrip().startswith("#")]
    if "expected ','" in problem and above:
        whole = lines[above[-1]].strip()
        last = whole.partition(" #")[0].rstrip()
        if not whole.endswith(_ITEM_ENDS) and not last.endswith(_ITEM_ENDS):
            return f"put a comma at the end of line {above[-1] + 1}: {last[-80:]!r}"
    return "look at this line and the one before: a missing quote, comma, colon or bracket, or a tab"
