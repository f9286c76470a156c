"""The rules: every example is a test, and no pattern can be made slow by a line."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from hpcjob.errors import InputError
from hpcjob.logs.own_rules import faults, read_own
from hpcjob.logs.rulebook import ERRORS, RULES, Rule, Rulebook, load_errors, read

from .conftest import line

FILES = sorted(RULES.glob("*.yml"))
ALL = [(path, rule) for path in FILES for rule in read(path)]
IDS = [f"{path.stem}:{rule.id}" for path, rule in ALL]


@pytest.mark.parametrize(("path", "rule"), ALL, ids=IDS)
def test_examples(path: Path, rule: Rule) -> None:
    """Each line that a rule must match is given to it, not to a rule tried before it; the others are refused."""
    book = load_errors() if path.stem in ERRORS else Rulebook(read(path))
    assert not list(faults(rule))
    assert rule.reject or rule.role in ("info", "warning"), "a rule that blames must say what it does not blame"
    for example in rule.match:
        for prefix in ("", "[rank3]: ", "node07: 5: "):
            finding = book.find(line(prefix + example))
            assert finding is not None, example
            assert finding.rule == rule.id, example
            assert any(literal in f"{prefix}{example}".encode() for literal in book.literals)
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


RULE = "- {id: a, topic: t, role: info, literal: x, say: y, source: s, match: [x]}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RULE.replace("info", "fatal"), ":1: role: 'fatal' is not one of cause, follower, info, symptom, warning"),
        (RULE.replace(", match: [x]", ""), ":1: rule: `match` is missing"),
        ("# ours\n- id: a\n  colour: red", ":3: rule has no key 'colour'"),
        (RULE.replace("info", "cause"), ":1: topic of the rule 'a': 't' of a cause is none of hardware, node, "),
        (RULE.replace("literal: x", "literal: ''"), ":1: literal of the rule 'a': is empty"),
        (RULE.replace("say: y", "pattern: '(', say: y"), ":1: pattern of the rule 'a': missing ), unterminated"),
        (RULE.replace("say: y", "pattern: '(a+)+', say: y"), "repeats a repetition"),
        (RULE.replace("say: y", "say: '{host}'"), "say of the rule 'a': uses {host}, which the pattern does not name"),
        (RULE.replace("say: y", "say: 'a }'"), "say of the rule 'a': Single '}' encountered"),
        (RULE[:-1] + ", fixes: {'nccl 2': z}}", "fixes of the rule 'a': 'nccl 2' is not a condition"),
        (RULE.replace("[x]", "\n  [x, ax,\n  z]"), ":3: match of the rule 'a': 'z' does not hold the literal"),
        (RULE.replace("say: y", "pattern: 'x.', say: y"), ":1: match of the rule 'a': 'x' does not fit the pattern"),
        (RULE.replace("[x]", "[]"), ":1: match of the rule 'a': is empty"),
        (f"{RULE[:-1]},\n  reject: [y, ox]}}", ":2: reject of the rule 'a': 'ox' fits the rule"),
        (f"{RULE}\n{RULE}", ":2: match of the rule 'a': 'x' is given to the rule 'a' before it"),
        ("id: a", ":1: no list of rules"),
        ("- a", ":1: no rule"),
        ("- &a [*a]", "own.yml"),
        ("- &a {id: *a}", ":1: found unconstructable recursive node"),
        ("- " + "[" * 3000 + "]" * 3000, "nest"),
        ("- id: [", ":2: did not find expected"),
        ("- id: \x01", "control characters are not allowed"),
        ("- id: a\n\tb: c", ":2: found a tab character"),
    ],
)
def test_damaged_rule_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the user's file, the line, what is wrong there and where its keys are described."""
    path = tmp_path / "own.yml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_own(path)
    assert message in caught.value.message
    assert caught.value.message.startswith(f"{path}:")
    if " of the rule " in message:
        assert "docs/logs.md" in (caught.value.hint or "")


def test_braces_in_a_line_are_text(tmp_path: Path) -> None:
    """What a line says is put into the rule's words as it is, whatever it looks like."""
    path = tmp_path / "own.yml"
    path.write_text(
        "- {id: a, topic: t, role: info, literal: 'x ', pattern: 'x (?P<w>.*)', say: '<{w}>', source: s, match: ['x ']}"
    )
    finding = Rulebook(read_own(path)).find(line("x {w.__class__} {0} %s"))
    assert finding is not None
    assert finding.say == "<{w.__class__} {0} %s>"
