"""The rules: every example is a test, and no pattern can be made slow by a line."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from hpcjob.errors import InputError
from hpcjob.logs.rulebook import ERRORS, RULES, Rule, Rulebook, load_errors, read

from .conftest import line

FILES = sorted(RULES.glob("*.yml"))
ALL = [(path, rule) for path in FILES for rule in read(path)]
IDS = [f"{path.stem}:{rule.id}" for path, rule in ALL]


@pytest.mark.parametrize(("path", "rule"), ALL, ids=IDS)
def test_examples(path: Path, rule: Rule) -> None:
    """Each line that a rule must match is given to it, not to a rule tried before it; the others are refused."""
    book = load_errors() if path.stem in ERRORS else Rulebook(read(path))
    assert rule.match
    assert rule.reject or rule.role in ("info", "warning"), "a rule that blames must say what it does not blame"
    for example in rule.match:
        for prefix in ("", "[rank3]: ", "node07: 5: "):
            finding = book.find(line(prefix + example))
            assert finding is not None, example
            assert finding.rule == rule.id, example
            assert book.may_match(f"{prefix}{example}".encode())
    for example in rule.reject:
        finding = book.find(line(example))
        assert finding is None or finding.rule != rule.id, example


def test_ids_are_unique() -> None:
    """A rule is named by its id in --json."""
    ids = [rule.id for _, rule in ALL]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(("path", "rule"), ALL, ids=IDS)
def test_no_unbounded_repetition_within_another(path: Path, rule: Rule) -> None:
    """Nested repetition makes matching exponential; besides, only a line's first 4096 characters are searched."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import sre_parse  # the only parser of patterns there is from 3.10 to 3.13
    assert _unbounded(sre_parse.parse(rule.pattern or ""), inside=False) <= 5


def _unbounded(node: Any, *, inside: bool) -> int:
    count = 0
    for operation, argument in node:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, body = argument
            repeats = str(high) == "MAXREPEAT" or high > 8
            assert not (inside and repeats), f"a repetition within a repetition: {low}-{high}"
            count += (str(high) == "MAXREPEAT") + _unbounded(body, inside=inside or repeats)
        elif name == "SUBPATTERN":
            count += _unbounded(argument[3], inside=inside)
        elif name == "BRANCH":
            count += sum(_unbounded(branch, inside=inside) for branch in argument[1])
    return count


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- id: a\n  topic: t\n  role: fatal\n  literal: x\n  say: y\n  source: s\n  match: [x]", "Invalid enum value"),
        ("- id: a\n  topic: t\n  role: info\n  literal: x\n  say: y\n  source: s", "missing required field `match`"),
        ("- id: a\n  colour: red", "unknown field"),
        ("- {id: a, topic: t, role: info, literal: '', say: y, source: s, match: [x]}", "literal is empty"),
        ("- {id: a, topic: t, role: info, literal: x, pattern: '(', say: y, source: s, match: [x]}", "unterminated"),
        (
            "- {id: a, topic: t, role: info, literal: x, pattern: '(a+)+', say: y, source: s, match: [x]}",
            "repeats a rep",
        ),
        ("- {id: a, topic: t, role: info, literal: x, say: '{host}', source: s, match: [x]}", "does not name"),
        ("- id: [", ":2: did not find expected"),
        ("- id: \x01", "control characters are not allowed"),
        ("- id: a\n\tb: c", ":2: found a tab character"),
    ],
)
def test_damaged_rule_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the file and what is wrong in it."""
    path = tmp_path / "own.yml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read(path)
    assert re.search(re.escape(message), caught.value.message)
    assert str(path) in caught.value.message


def test_braces_in_a_line_are_text(tmp_path: Path) -> None:
    """What a line says is put into the rule's words as it is, whatever it looks like."""
    path = tmp_path / "own.yml"
    path.write_text(
        "- {id: a, topic: t, role: info, literal: 'x ', pattern: 'x (?P<w>.*)', say: '<{w}>', source: s, match: ['x ']}"
    )
    finding = Rulebook(read(path)).find(line("x {w.__class__} {0} %s"))
    assert finding is not None
    assert finding.say == "<{w.__class__} {0} %s>"
