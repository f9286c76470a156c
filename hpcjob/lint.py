"""What people get wrong in jobs, found in a plan before it is submitted; the rules are data, in ``lints.yml``."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from hpcjob.documents.checking import convert
from hpcjob.documents.reading import read
from hpcjob.plan import Plan
from neoxlite.common.near import near


class Value(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A variable, the pattern of what it takes, the same for people, and where that is written."""

    name: str
    takes: str
    say: str
    source: str


class Renamed(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A name that nothing reads any more, and what has taken its place."""

    name: str
    now: str
    source: str


class LeftOn(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A value for looking for a fault, and what it costs."""

    name: str
    value: str
    say: str
    source: str


class Words(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A pattern of a word of a command.

    Attributes:
        launched: only where a launcher starts the command once a rank; then the first words alone are looked at.
        kinds: only in jobs of these kinds; empty: in all.
    """

    pattern: str
    say: str
    fix: str
    source: str
    launched: bool = False
    kinds: list[Literal["train", "cpu", "transfer", "setup"]] = []


class Lints(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All rules."""

    nccl_names: list[str]
    nccl_prefixes: list[str]
    values: list[Value]
    renamed: list[Renamed]
    left_on: list[LeftOn]
    words: list[Words]

    @property
    def known(self) -> set[str]:
        """The names that NCCL reads."""
        return {name for line in self.nccl_names for name in line.split()}


@functools.cache
def rules() -> Lints:
    """Return the rules that are shipped."""
    return convert(read(Path(__file__).with_name("lints.yml"), "lint rules"), Lints, "lint rules")


def lint(plan: Plan) -> list[str]:
    """Return what looks wrong in ``plan``, a sentence each with what to do."""
    variables = [("env", dict(plan.job.env))]
    steps = plan.job.steps or []
    variables += [(f"steps[{number}].env", dict(step.env)) for number, step in enumerate(steps)]
    words = list(_of_words(plan))
    if not words and not any(values for _, values in variables):
        return []
    found = [warning for key, values in variables for warning in _of_variables(key, values)]
    return list(dict.fromkeys([*found, *words]))


def _of_variables(key: str, variables: dict[str, str]) -> Iterator[str]:
    if not variables:
        return
    book = rules()
    for name, text in variables.items():
        renamed = next((rule for rule in book.renamed if rule.name == name), None)
        if renamed:
            yield f"{key}.{name}: nothing reads it; use {renamed.now}"
        elif name.startswith("NCCL_") and name not in book.known and not name.startswith(tuple(book.nccl_prefixes)):
            known = [other.removeprefix("NCCL_") for other in (*book.known, *(rule.now for rule in book.renamed))]
            like = near(name.removeprefix("NCCL_"), known, 1)
            yield f"{key}.{name}: NCCL knows no such variable" + (f"; did you mean NCCL_{like[0]}?" if like else "")
        for value in book.values:
            if value.name == name and not re.fullmatch(value.takes, text, re.IGNORECASE):
                yield f"{key}.{name}: {text!r} is none of its values: {value.say}"
        for rule in book.left_on:
            if rule.name == name and rule.value.lower() == text.lower():
                yield f"{key}.{name}={text} is left on: {rule.say}; remove it where no fault is looked for"


def _of_words(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        if step.is_train:
            continue
        for rule in rules().words:
            if rule.kinds and plan.job.kind not in rule.kinds:
                continue
            if rule.launched and step.launcher == "none":
                continue
            words = _program(step.argv) if rule.launched else step.argv
            hit = next((word for word in words if re.fullmatch(rule.pattern, word, re.DOTALL)), None)
            if hit is not None:
                shown = hit if len(hit) < 40 else f"{hit[:37]}..."
                yield f"step {step.name}: {shown!r}: {rule.say}; {rule.fix}"


def _program(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that say what runs: the program, and of ``python -m NAME`` the module."""
    return argv[:3] if len(argv) > 2 and argv[1] == "-m" else argv[:1]
