"""Reports are rows that may change while a log grows; a row is shown again when its text has changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple


class Row(NamedTuple):
    """One row of a report.

    Attributes:
        key: what the row is about; a row of the same key replaces the one shown before.
        role: ``info``, ``warning``, ``cause`` or ``follower``; chooses the colour.
        topic: word at the row's start.
        details: further lines, indented.
    """

    key: Hashable
    role: str
    topic: str
    text: str
    details: tuple[str, ...] = ()
    fix: str | None = None


class Shown:
    """Remembers what was shown of a report."""

    def __init__(self) -> None:
        self._texts: dict[Hashable, str] = {}

    def changed(self, rows: Iterable[Row]) -> Iterator[tuple[Row, bool]]:
        """Give the rows that are new (False) or whose text has changed since they were shown (True)."""
        for row in rows:
            before = self._texts.get(row.key)
            if before != row.text:
                self._texts[row.key] = row.text
                yield row, before is not None
