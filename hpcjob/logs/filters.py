"""Which lines of a log are asked for: of some ranks, hosts, with a text, from a time on."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from hpcjob.errors import InputError
from hpcjob.logs.identity import Identity
from hpcjob.logs.lines import Line
from hpcjob.logs.since import time_in

_PATTERN_LIMIT = 16 * 1024


def parse_ranks(text: str) -> frozenset[int]:
    """Return ranks written as ``3``, ``0-7`` or ``0,8-15``.

    Raises:
        InputError: it is no such list.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError(f"--rank {text!r} is not a list of ranks", hint="write 3, 0-7 or 0,8-15")
        ranks.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(ranks)


def parse_pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression.

    Raises:
        InputError: it is none.
    """
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(
            f"--grep {text!r} is not a regular expression: {error}", hint="escape special characters: \\[, \\(, \\*"
        ) from None


class LineFilter:
    """What a line must be to be shown; None leaves a condition out.

    Attributes:
        seen: how many lines passed; others: ranks of those that did not, as far as known.
        pattern: what a line must match.
        time_of: tells the time of a line that has none.
    """

    def __init__(
        self,
        *,
        ranks: Collection[int] | None = None,
        hosts: Collection[str] | None = None,
        pattern: re.Pattern[str] | None = None,
        since_s: float | None = None,
    ) -> None:
        self.ranks = ranks
        self.hosts = None if hosts is None else sorted({host.lower() for host in hosts})
        self._names = {host.partition(".")[0] for host in self.hosts or ()}
        self.since_s = since_s
        self.seen = 0
        self.others: set[int] = set()
        self.other_hosts: set[str] = set()
        self.identity = Identity()
        self.time_of: Callable[[Line], str | None] = lambda line: None
        self.pattern = pattern
        self._clock: dict[str, float] = {}

    @property
    def timeless(self) -> bool:
        """Whether a time was asked for, and no line told of one."""
        return self.since_s is not None and not self._clock

    @property
    def active(self) -> bool:
        """Whether anything is asked for."""
        return any(one is not None for one in (self.ranks, self.hosts, self.pattern, self.since_s))

    def wants(self, line: Line) -> bool:
        """Return whether a line is asked for."""
        wanted = self._of_rank(line) and self._of_host(line) and self._recent(line)
        if wanted and self.pattern is not None:
            wanted = self.pattern.search(line.shown[:_PATTERN_LIMIT]) is not None
        self.seen += wanted
        return wanted

    def _of_rank(self, line: Line) -> bool:
        if self.ranks is None:
            return True
        rank = line.rank
        if rank is None and line.pid is not None:
            self.identity.read(line)
            rank = self.identity.rank(line)
        if rank is not None and rank not in self.ranks:
            self.others.add(rank)
        return rank in self.ranks

    def _of_host(self, line: Line) -> bool:
        if self.hosts is None:
            return True
        self.identity.read(line)
        host = line.host or (None if line.rank is None else self.identity.host_of.get(line.rank))
        if host is None:
            return False
        if host.lower().partition(".")[0] in self._names:
            return True
        self.other_hosts.add(host)
        return False

    def _recent(self, line: Line) -> bool:
        """Lines without a time have that of the line before in their file."""
        if self.since_s is None:
            return True
        if self._clock.get(line.source, 0.0) >= self.since_s:
            return True  # times grow along a log
        moment = time_in(line.shown) or time_in(self.time_of(line) or "")
        if moment is not None:
            self._clock[line.source] = moment
        return self._clock.get(line.source, 0.0) >= self.since_s
