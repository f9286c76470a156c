"""The views of ``hpcjob tail``: plain lines, the iteration table, and reports of NCCL and of errors.

A view *picks* items from a line, which may happen several times for the same line while the end of a file is searched,
*accepts* each item that is to be shown once and in order, and *ticks* when all that is there has been accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from hpcjob.logs import parse
from hpcjob.logs.events import Event, Iteration, LogLine, Validation, origin
from hpcjob.logs.lines import Gate, Line
from hpcjob.logs.metrics import Metrics, sequence_length
from hpcjob.logs.output import Output
from hpcjob.logs.report import Row, Shown
from hpcjob.logs.scan import Interest, Shapes
from hpcjob.logs.table import TABLE, IterationTable

T = TypeVar("T")


class View(Protocol[T]):
    """See the module."""

    gate: Gate | None
    whole: Whole | None
    """What reads whole logs faster than line by line; None where every line is shown."""
    default_count: int | None
    """Items of each file that are shown without ``-n``; None is all."""

    def pick(self, line: Line) -> Iterable[T]:
        """Return the items of a line."""

    def accept(self, item: T) -> None:
        """Show an item, or take it into the report."""

    def tick(self, *, final: bool) -> None:
        """All that is there has been accepted; ``final``: and nothing more will come."""


class LinesView:
    """The lines as they are; a heading where the file changes, as ``tail`` of several files has it."""

    gate: Gate | None = None
    whole: Whole | None = None
    default_count: int | None = 10

    def __init__(self, output: Output, *, headings: bool) -> None:
        self._output = output
        self._headings = headings
        self._source: str | None = None

    def pick(self, line: Line) -> Iterable[Line]:
        return (line,)

    def accept(self, item: Line) -> None:
        if self._output.json:
            self._output.event(LogLine(**origin(item), text=item.text))
            return
        if self._headings and item.source != self._source:
            first = self._source is None
            self._source = item.source
            self._output.text(f"{'' if first else chr(10)}==> {item.source} <==", "header")
        self._output.text(item.shown)

    def tick(self, *, final: bool) -> None:
        pass


class LossView:
    """The iteration table.

    DeepSpeed's pipeline engine and the trainer may both print a line for an iteration: the engine's comes first and is
    held back until it is clear that the other does not come. Rows before the first iteration wait for it, since it
    tells how wide the columns are.

    Attributes:
        shown: how many events were shown.
    """

    default_count: int | None = 20

    def __init__(self, output: Output, metrics: Metrics) -> None:
        self._output = output
        self._metrics = metrics
        self._table = IterationTable(tokens=False)
        self._held: Iteration | None = None
        self._early: list[Event] = []
        self.shown = 0
        self._rows_since_header: int | None = None
        self.gate: Gate | None = _events_gate if output.json else _loss_gate
        self.whole: Whole | None = self

    def shapes(self) -> Shapes:
        """Return the shapes of lines of interest."""
        needles = (*parse.TABLE_NEEDLES, b"seq_length .", *(parse.NEEDLES if self._output.json else ()))
        return Shapes([(Interest.ALL, needles)], bounded=False)

    def pending(self) -> bool:
        """No event goes over several lines."""
        return False

    def pick(self, line: Line) -> Iterable[Event]:
        if self._metrics.sequence_length is None and "seq_length ." in line.text:
            self._metrics.sequence_length = sequence_length(line.text)
        events = parse.parse(line)
        return events if self._output.json else [event for event in events if isinstance(event, TABLE)]

    def accept(self, item: Event) -> None:
        if isinstance(item, Iteration):
            held, self._held = self._held, None
            if held is not None and held.iteration != item.iteration:
                self._show(held)
            if item.shape == "deepspeed":
                self._held = item
                return
        else:
            self._release()
        self._show(item)

    def tick(self, *, final: bool) -> None:
        self._release()
        if final or any(isinstance(event, Validation) for event in self._early):
            self._show_early()

    def _release(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._show(held)

    def _show(self, event: Event) -> None:
        if isinstance(event, Iteration):
            event = self._metrics.fill(event)
        if self._output.json:
            self.shown += 1
            self._output.event(event)
        elif self._rows_since_header is None and not isinstance(event, Iteration):
            self._early.append(event)
        else:
            self._row(event)

    def _show_early(self) -> None:
        early, self._early = self._early, []
        for event in early:
            self._row(event)

    def _row(self, event: Event) -> None:
        self._header(event)
        self._show_early()
        self.shown += 1
        self._output.text(self._table.row(event), _style(event))
        self._rows_since_header = (self._rows_since_header or 0) + 1

    def _header(self, event: Event) -> None:
        tokens = self._table.tokens or (isinstance(event, Iteration) and event.tokens_per_s is not None)
        every = self._output.rows_between_headers
        due = self._rows_since_header is None or (every is not None and self._rows_since_header >= every)
        wider = self._table.fit(event)
        if due or wider or tokens != self._table.tokens:
            self._table.tokens = tokens
            self._output.text(self._table.header(), "header")
            self._rows_since_header = 0


def _loss_gate(data: bytes) -> bool:
    return parse.gate(data) or b"seq_length ." in data


def _events_gate(data: bytes) -> bool:
    return _loss_gate(data) or any(needle in data for needle in parse.NEEDLES)


def _style(event: Event) -> str:
    if isinstance(event, Validation):
        return "validation"
    if isinstance(event, Iteration):
        return "cause" if not event.finite else "warning" if event.skipped else ""
    return ""


class Whole(Protocol):
    """What can read whole logs by shape, see `hpcjob.logs.scan`."""

    def shapes(self) -> Shapes:
        """Return the shapes of lines of interest."""

    def pending(self) -> bool:
        """Whether the next line belongs to one that began."""


class Report(Whole, Protocol):
    """What gathers lines into rows: `hpcjob.logs.nccl.NcclReport`, `hpcjob.logs.failures.FailureReport`."""

    gate: Gate

    def read(self, line: Line) -> Sequence[Event]:
        """Take a line in and return the events that it completes."""

    def finish(self) -> Sequence[Event]:
        """The log has ended: return what was left unfinished."""

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
        self.gate: Gate | None = report.gate
        self.whole: Whole | None = report

    def pick(self, line: Line) -> Iterable[Line]:
        return (line,)

    def accept(self, item: Line) -> None:
        self._write(self._report.read(item))

    def tick(self, *, final: bool) -> None:
        if final:
            self._write(self._report.finish())
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
        mark = "!" if row.role in ("warning", "cause", "symptom") else " "
        self._output.text(f"{mark} {row.topic:<12} {row.text}", row.role)
        if again:
            return
        for detail in row.details:
            self._output.text(" " * 15 + detail)
        if row.fix is not None:
            self._output.text(" " * 15 + "-> " + row.fix)


class RankView(Generic[T]):
    """Another view, of one rank's lines only.

    Attributes:
        seen: whether there was one.
        others: ranks of the other lines.
    """

    def __init__(self, view: View[T], rank: int) -> None:
        self._view = view
        self._rank = rank
        self.seen = view.gate is not None  # else lines are dropped before they come here
        self.others: set[int] = set()
        self.gate = view.gate
        self.whole: Whole | None = None  # a rank's lines are told apart by their prefixes
        self.default_count = view.default_count

    def pick(self, line: Line) -> Iterable[T]:
        if line.rank != self._rank:
            if line.rank is not None:
                self.others.add(line.rank)
            return ()
        self.seen = True
        return self._view.pick(line)

    def accept(self, item: T) -> None:
        self._view.accept(item)

    def tick(self, *, final: bool) -> None:
        self._view.tick(final=final)
