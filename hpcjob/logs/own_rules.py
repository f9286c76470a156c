"""Rules of the user's own, tried before the shipped ones: docs/logs.md, "A rule of your own".

A fault in one is told with its line, and so is an example that the rule does not treat as its author meant: a rule
that never fits would else be silent for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from hpcjob.documents.checking import convert
from hpcjob.documents.coreyaml import CoreLoader
from hpcjob.documents.document import Document, KeyPath
from hpcjob.errors import InputError
from hpcjob.logs.rulebook import Rule
from hpcjob.logs.topics import TOPICS
from hpcjob.logs.versions import Condition
from hpcjob.regular import read_regular
from neoxlite.common.printable import tell

_HINT = 'docs/logs.md, "A rule of your own", describes the keys of a rule'
_NESTED = re.compile(r"[*+}]\)[*+{]")


class _Fault(NamedTuple):
    """What is wrong with a rule of a file, by its number from 0, at a key of it."""

    rule: int
    key: KeyPath
    words: str


def read_own(path: Path) -> list[Rule]:
    """Read the rules of a user's file.

    Raises:
        InputError: it cannot be read or is no YAML; a rule lacks a key, has an unknown one or a bad value, or does
            not fit its own examples.
    """
    try:
        loader = CoreLoader(read_regular(path))
        node = loader.get_single_node()
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            line = node.start_mark.line + 1
            raise InputError(f"{path}:{line}: no list of rules: each begins with `- id: NAME`", hint=_HINT)
        documents = [_document(item, loader.construct_object(item, deep=True), path) for item in node.value]
    except yaml.MarkedYAMLError as error:
        line_of = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise InputError(f"{path}{line_of}: {error.problem}", hint="fix the YAML there") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}", hint="is it a text file?") from error
    except RecursionError:
        raise InputError(f"{path}: nested too deeply", hint="write it flat") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="check that the file can be read") from error
    return _rules(documents)


def read_found(path: Path) -> list[Rule]:
    """Read the rules of a user's file; of one with a fault none, and the fault is told on stderr."""
    try:
        return read_own(path)
    except InputError as error:
        tell(f"warning: {error.message}\n{' ' * 8}the rules of this file are skipped; {error.hint}")
        return []


def _document(node: yaml.Node, data: Any, path: Path) -> Document:
    first = f"{path}:{node.start_mark.line + 1}"
    if not isinstance(data, dict):
        raise InputError(f"{first}: no rule: it begins with `- id: NAME`", hint=_HINT)
    return Document(data, dict(_places(node, (), path)), first)


def _rules(documents: Sequence[Document]) -> list[Rule]:
    try:
        rules = [convert(document, Rule, "rule") for document in documents]
    except InputError as error:
        error.hint = error.hint or _HINT
        raise
    of_values = (_Fault(index, (key,), words) for index, rule in enumerate(rules) for key, words in faults(rule))
    fault = next(of_values, None) or next(_unlike_examples(rules), None)
    if fault is not None:
        where, key = documents[fault.rule].place(fault.key), fault.key[0]
        raise InputError(f"{where}: {key} of the rule {rules[fault.rule].id!r}: {fault.words}", hint=_HINT)
    return rules


def _places(node: yaml.Node, key: KeyPath, path: Path) -> Iterator[tuple[KeyPath, str]]:
    """Give the line of each key and each item of a list."""
    if isinstance(node, yaml.MappingNode):
        items = [(name.value, name, value) for name, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        items = [(index, value, value) for index, value in enumerate(node.value)]
    else:
        return
    for name, where, value in items:
        yield (*key, name), f"{path}:{where.start_mark.line + 1}"
        yield from _places(value, (*key, name), path)


def faults(rule: Rule) -> Iterator[tuple[str, str]]:
    """Give what is wrong with the values of a rule: (key, words)."""
    if rule.role in ("cause", "symptom") and rule.topic not in TOPICS:
        yield "topic", f"{rule.topic!r} of a {rule.role} is none of {', '.join(TOPICS)}"
    if not rule.literals or not all(rule.literals):
        yield "literal", "is empty"
    try:
        for text in (*rule.fixes, *filter(None, [rule.versions])):
            Condition(text)
    except ValueError as error:
        yield "fixes" if rule.fixes else "versions", str(error)
    if _NESTED.search(rule.pattern or ""):
        yield "pattern", "repeats a repetition, which can take for ever"
    try:
        groups = set(rule.regex.groupindex) if rule.regex else set()
        rule.say.format_map(dict.fromkeys(groups, ""))
    except re.error as error:
        yield "pattern", str(error)
    except (KeyError, IndexError) as error:
        yield "say", f"uses {{{error.args[0]}}}, which the pattern does not name"
    except ValueError as error:
        yield "say", f"{error}: write {{{{ and }}}} for braces"


def _unlike_examples(rules: Sequence[Rule]) -> Iterator[_Fault]:
    """Give the examples that the rules of a file, tried in their order, do not treat as meant."""
    for index, rule in enumerate(rules):
        if not rule.match:
            yield _Fault(index, ("match",), "is empty: give a line that the rule must match")
        for place, text in enumerate(rule.match):
            if (words := _not_given(rule, text, rules[:index])) is not None:
                yield _Fault(index, ("match", place), f"{text!r} {words}")
        for place, text in enumerate(rule.reject):
            if _not_given(rule, text, rules[:index]) is None:
                yield _Fault(index, ("reject", place), f"{text!r} fits the rule")


def _not_given(rule: Rule, text: str, before: Sequence[Rule]) -> str | None:
    """Return why a line is not given to a rule."""
    other = next((one for one in before if one.fields(text) is not None), None)
    if other is not None:
        return f"is given to the rule {other.id!r} before it"
    if rule.fields(text) is not None:
        return None
    has_literal = any(literal in text for literal in rule.literals)
    return "does not fit the pattern" if has_literal else "does not hold the literal"
