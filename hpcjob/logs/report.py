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
        times: how often it was said.
    """

    key: Hashable
    role: str
    topic: str
    text: str
    details: tuple[str, ...] = ()
    fix: str | None = None
    times: int = 1


class Shown:
    """Remembers what was shown of a report.

    Args:
        seldom: of a row that only counts up, show it again when its count has doubled.
    """

    def __init__(self, *, seldom: bool = False) -> None:
        self._seldom = seldom
        self._rows: dict[Hashable, Row] = {}

    def changed(self, rows: Iterable[Row]) -> Iterator[tuple[Row, bool]]:
        """Give the rows that are new (False) or whose text has changed since they were shown (True)."""
        for row in rows:
            before = self._rows.get(row.key)
            if before is not None:
                if before.text == row.text:
                    continue
                if self._seldom and before.times < row.times < 2 * before.times:
                    continue
            self._rows[row.key] = row
            yield row, before is not None
