"""Rules as data: what a known line means and what to do about it.

A rule in ``hpcjob/logs/rules/*.yml``::

    - id: nccl-socket-refused                  # unique
      topic: network                           # what it is about; of a cause: a word of `hpcjob.logs.topics`
      role: cause                              # info, warning, cause, symptom or follower, see `ROLES`
      literal: "failed : Connection refused"   # plain text of the line, looked for first; a list means any of them
      pattern: 'Connect to (?P<peer>\\S+) failed : Connection refused'   # left out: the literal alone decides
      say: "{peer} does not listen"            # may use the pattern's named groups
      fix: "..."                               # left out if nothing is to be done
      fixes: {"nccl < 2.21": "..."}            # in place of ``fix`` where the log tells such a version; the first wins
      hinted: true                             # the program's next line, if indented, is its own fix and goes before
      source: "NCCL src/misc/socket.cc"
      versions: "nccl >= 2.14, nccl < 2.27"    # which print the line; left out if it has always looked so
      match: ["..."]                           # lines that the rule must match, without prefixes; tests try them all
      reject: ["..."]                          # lines that it must not match

Named groups with a meaning: ``rank`` and ``host`` (or ``node``) say who is at fault, ``peer`` who is said to be gone;
those of `hpcjob.logs.versions.SOFTWARE` (``nccl``, ``torch``, ...) tell a version, for ``fixes``.

The first rule that fits a line wins, in the order of the file. Patterns are searched in at most `TEXT_LIMIT`
characters and may not repeat a repetition, so that no line can make matching slow.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from hpcjob import resources
from hpcjob.home import expanded
from hpcjob.logs import rule_cache
from hpcjob.logs.events import Finding, origin
from hpcjob.logs.lines import Line
from hpcjob.logs.shape import shape
from hpcjob.logs.versions import Condition

ROLES = {
    "info": "how things are",
    "warning": "works, but not as it should",
    "cause": "an error of this process or machine itself",
    "symptom": "an error of this process whose reason stands elsewhere: a generic message, an exit code",
    "follower": "an error elsewhere, seen from here",
}
RULES = Path(__file__).parent / "rules"
ERRORS = (
    "hpcjob",
    "gpu",
    "kernel",
    "torch",
    "nccl_errors",
    "storage",
    "trainers",
    "python",
    "launchers",
    "schedulers",
    "containers",
    "tools",
    "catchall",
)
"""The shipped files about what goes wrong, in the order in which their rules are tried."""
TEXT_LIMIT = 4096
_SHAPES_KEPT = 10_000


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One rule; the fields are described in the module, and `hpcjob.logs.own_rules` checks what they hold."""

    id: str
    topic: str
    role: Literal["info", "warning", "cause", "symptom", "follower"]
    literal: str | list[str]
    say: str
    source: str
    match: list[str]
    pattern: str | None = None
    fix: str | None = None
    fixes: dict[str, str] = {}
    hinted: bool = False
    versions: str | None = None
    reject: list[str] = []

    @property
    def literals(self) -> list[str]:
        """The literal texts, of which a line has one at least."""
        return [self.literal] if isinstance(self.literal, str) else self.literal

    @cached_property
    def regex(self) -> re.Pattern[str] | None:
        """The compiled pattern."""
        return None if self.pattern is None else re.compile(self.pattern)

    def fix_for(self, known: Mapping[str, str]) -> str | None:
        """Return what to do with these versions, by name."""
        return next((fix for text, fix in self.fixes.items() if Condition(text).holds(known)), self.fix)

    def fields(self, text: str) -> dict[str, str] | None:
        """Return what the pattern takes from ``text``, or None if the rule does not fit."""
        return self.take(text) if any(literal in text for literal in self.literals) else None

    def take(self, text: str) -> dict[str, str] | None:
        """Do the same for a text that is known to have one of the literals."""
        if self.regex is None:
            return {}
        match = self.regex.search(text[:TEXT_LIMIT])
        return None if match is None else {name: value or "" for name, value in match.groupdict().items()}


class Rulebook:
    """Rules in their order."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = list(rules)
        self._by_id = {rule.id: rule for rule in self.rules}
        self.hinted = frozenset(rule.id for rule in self.rules if rule.hinted)
        self._needles = tuple({literal.encode() for rule in self.rules for literal in rule.literals})
        self._by_literal = [(literal, rule) for rule in self.rules for literal in rule.literals]
        self._shapes = [shape(literal.encode()) for literal, _ in self._by_literal]
        self._candidates: dict[bytes, list[tuple[str, Rule]]] = {}

    def rule(self, name: str) -> Rule | None:
        """Return a rule by its id."""
        return self._by_id.get(name)

    def find(self, line: Line) -> Finding | None:
        """Return what the first rule that fits says of the line."""
        text = line.text
        for literal, rule in self._of_shape(shape(text.encode())):
            if literal not in text:
                continue
            fields = rule.take(text)
            if fields is not None:
                return Finding(
                    **origin(line),
                    rule=rule.id,
                    topic=rule.topic,
                    role=rule.role,
                    say=_filled(rule.say, fields),
                    fix=rule.fix,
                    text=line.text[:TEXT_LIMIT],
                    fields=fields,
                )
        return None

    def _of_shape(self, key: bytes) -> list[tuple[str, Rule]]:
        """Return the rules that lines of a shape can fit: lines are many, their shapes few."""
        found = self._candidates.get(key)
        if found is None:
            found = [item for item, needle in zip(self._by_literal, self._shapes, strict=True) if needle in key]
            if len(self._candidates) < _SHAPES_KEPT and len(key) < TEXT_LIMIT:
                self._candidates[key] = found
        return found

    @property
    def literals(self) -> tuple[bytes, ...]:
        """The literal texts of all rules."""
        return self._needles


def _filled(say: str, fields: dict[str, str]) -> str:
    """Put what the line says into the rule's words; what it does not say leaves no gap."""
    return " ".join(say.format_map(fields).split()).rstrip(" :,") if "{" in say else say


@lru_cache
def load(*names: str) -> Rulebook:
    """Read rule files by name (``nccl`` is ``rules/nccl.yml``), as one book in this order."""
    return Rulebook(rule for name in names for rule in shipped()[name])


@lru_cache
def load_errors(*named: Path, found: tuple[Path, ...] = ()) -> Rulebook:
    """Return the rules about errors: those of the user's own files first, then the shipped ones.

    Args:
        named: files that the user named for this command; found: of `own_files`. One with a fault is left out, which is
            told on stderr: it may be somebody else's, and the log is to be read now.

    Raises:
        InputError: a named file cannot be read, or a rule in it has a fault.
    """
    mine: list[Rule] = []
    if named or found:
        from hpcjob.logs.own_rules import read_found, read_own

        mine = [
            *(rule for path in named for rule in read_own(path)),
            *(rule for path in found for rule in read_found(path)),
        ]
    replaced = {rule.id for rule in mine}
    theirs = (rule for name in ERRORS for rule in shipped()[name])
    return Rulebook([*mine, *(rule for rule in theirs if rule.id not in replaced)])


@lru_cache
def shipped() -> dict[str, list[Rule]]:
    """Return the rules of all shipped files, by the file's name without ``.yml``."""
    paths = sorted(RULES.glob("*.yml"))
    key = rule_cache.key_of(path.read_bytes() for path in paths)
    kept = rule_cache.read(key)
    if kept is not None:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(kept, type=dict[str, list[Rule]])
    rules = {path.stem: read(path) for path in paths}
    rule_cache.write(key, msgspec.msgpack.encode(rules))
    return rules


def own_files() -> tuple[Path, ...]:
    """Return the user's rule files: ``log_rules/*.yml`` here, in the configuration folder and in ``HPCJOB_PATH``."""
    folders = [Path(), resources.config_dir()]
    folders += [expanded(part) for part in os.environ.get("HPCJOB_PATH", "").split(os.pathsep) if part]
    return tuple(file.absolute() for folder in folders for file in sorted((folder / "log_rules").glob("*.yml")))


def read(path: Path) -> list[Rule]:
    """Read the rules of a shipped file. Tests check them all, so nothing else does."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return msgspec.convert(yaml.load(path.read_bytes(), Loader=loader), list[Rule])  # noqa: S506 - a safe loader
