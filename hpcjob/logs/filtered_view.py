"""A view of some lines only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from hpcjob.logs.filters import LineFilter
from hpcjob.logs.lines import Line
from hpcjob.logs.views import View
from hpcjob.logs.wanted import Wanted

T = TypeVar("T")


class FilteredView(Generic[T]):
    """Another view, of some lines only."""

    def __init__(self, view: View[T], wanted: LineFilter) -> None:
        self.inner = view
        self._wanted = wanted
        self.whole = view.whole
        self.default_count = view.default_count

    def pick(self, line: Line) -> Iterable[T]:
        return self.inner.pick(line) if self._wanted.wants(line) else ()

    def grouping(self, item: T) -> tuple[Hashable, Hashable]:
        return self.inner.grouping(item)

    def accept(self, item: T) -> None:
        self.inner.accept(item)

    def tick(self, *, final: bool) -> None:
        self.inner.tick(final=final)


def wanted_by(view: View[T]) -> Wanted:
    """Return which lines a view is interested in."""
    return Wanted() if view.whole is None else Wanted(view.whole.shapes(), view.whole.pending_in)
