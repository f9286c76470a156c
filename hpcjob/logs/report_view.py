"""Reports of NCCL and of errors as views: gathered while lines come, shown when all there is has been read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from hpcjob.logs.events import Event
from hpcjob.logs.file_tail import alone
from hpcjob.logs.lines import Line
from hpcjob.logs.output import Output
from hpcjob.logs.report import Row, Shown
from hpcjob.logs.views import Whole


class Report(Whole, Protocol):
    """What gathers lines into rows: `hpcjob.logs.nccl.NcclReport`, `hpcjob.logs.failures.FailureReport`."""

    def read(self, line: Line) -> Sequence[Event]:
        """Take a line in and return the events that it completes."""

    def finish(self) -> Sequence[Event]:
        """The log has ended: return what was left unfinished."""

    def summary(self) -> Sequence[Event]:
        """Return what was gathered over the whole log."""

    def rows(self) -> Iterable[Row]:
        """Give the report as it is now."""


class ReportView:
    """A report that is shown when all there is has been read, and while following whatever changes in it."""

    default_count: int | None = None

    def __init__(self, output: Output, report: Report, nothing: str) -> None:
        self._output = output
        self._report = report
        self._shown = Shown()
        self._nothing = nothing
        self._any = False
        self.whole: Whole | None = report

    def pick(self, line: Line) -> Iterable[Line]:
        return (line,)

    def grouping(self, item: Line) -> tuple[Hashable, Hashable]:
        return alone(item)

    def accept(self, item: Line) -> None:
        self._write(self._report.read(item))

    def tick(self, *, final: bool) -> None:
        if final:
            self._write([*self._report.finish(), *self._report.summary()])
        if self._output.json:
            return
        for row, again in self._shown.changed(self._report.rows()):
            self._any = True
            self._row(row, again=again)
        if final and not self._any:
            self._output.text(self._nothing)

    def _write(self, events: Iterable[Event]) -> None:
        if self._output.json:
            for event in events:
                self._output.event(event)

    def _row(self, row: Row, *, again: bool) -> None:
        show_row(self._output, row, again=again)


def show_row(output: Output, row: Row, *, again: bool) -> None:
    """Show a row of a report; ``again``: it was shown before, and only its text has changed."""
    mark = "!" if row.role in ("warning", "cause", "symptom") else " "
    output.text(f"{mark} {row.topic:<12} {row.text}", row.role)
    if again:
        return
    for detail in row.details:
        output.text(" " * 15 + detail)
    if row.fix is not None:
        output.text(" " * 15 + "-> " + row.fix)
