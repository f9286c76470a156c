"""Fold what many processes say alike into one group that knows how many said it and who."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

from hpcjob.logs.events import Event
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line

_VARYING = lazy(r"0x[0-9a-fA-F]+|\d+")

E = TypeVar("E", bound=Event)


def without_numbers(text: str) -> str:
    """Replace numbers, so that messages that differ only in addresses, sizes and ids are alike."""
    return _VARYING.sub("#", text)


class Group(Generic[E]):
    """Events that are alike.

    Attributes:
        first: the one seen first.
        count: lines that said it.
        ranks: ranks that said it, as far as known.
        processes: ``host:pid`` that said it, as far as known.
    """

    def __init__(self, first: E) -> None:
        self.first = first
        self.count = 0
        self.ranks: set[int] = set()
        self.processes: set[str] = set()
        self.hosts: set[str] = set()

    @property
    def times(self) -> int:
        """How many processes said it; where no process is known, how many lines did."""
        return max(len(self.ranks), len(self.processes)) or self.count

    @property
    def who(self) -> str:
        """Ranks if known, else hosts, else nothing: ``rank 3 on node01``, ``ranks 0-2,5``, ``node01``."""
        if len(self.ranks) == 1:
            return ranks_in_words(self.ranks) + (f" on {self.first.host}" if self.first.host else "")
        if self.ranks:
            return ranks_in_words(self.ranks)
        names = sorted(self.hosts)
        return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


class Fold(Generic[E]):
    """Groups by key, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.groups: dict[Hashable, Group[E]] = {}

    def add(self, key: Hashable, event: E, line: Line | None = None) -> Group[E]:
        """Add an event to its group; ``line``, if given, tells the process."""
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(event)
        group.count += 1
        if event.rank is not None:
            group.ranks.add(event.rank)
        if event.host is not None:
            group.hosts.add(event.host)
        host = event.host or (None if line is None else line.host)
        if host is not None and line is not None and line.pid is not None:
            group.processes.add(f"{host}:{line.pid}")
        return group


def ranks_in_words(ranks: Collection[int]) -> str:
    """Write ranks for a sentence: ``rank 3``, ``ranks 0-2,5``."""
    return f"rank{'' if len(ranks) == 1 else 's'} {ranges(ranks)}"


def ranges(numbers: Iterable[int], width: int = 0) -> str:
    """Write numbers with runs put together: ``0-3,8``; with ``width`` digits at least, ``00-03,08``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join("-".join(f"{number:0{width}d}" for number in dict.fromkeys(run)) for run in runs)
