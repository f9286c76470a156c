"""The views of ``hpcjob tail``: plain lines, the iteration table, and reports of NCCL and of errors.

A view *picks* items from a line, which may happen several times for the same line while the end of a file is searched,
*accepts* each item that is to be shown once and in order, and *ticks* when all that is there has been accepted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeGuard, TypeVar

import msgspec

from hpcjob.logs import parse
from hpcjob.logs.events import Checkpoint, Event, Iteration, LogLine, Validation, origin
from hpcjob.logs.file_tail import alone
from hpcjob.logs.lines import Line
from hpcjob.logs.metrics import Metrics, sequence_length
from hpcjob.logs.output import Output
from hpcjob.logs.shapes import Interest, Shapes
from hpcjob.logs.table import TABLE, IterationTable
from hpcjob.logs.training import TrainingReader
from neoxlite.common.printable import printable

T = TypeVar("T")
_RECENT_AT_MOST = 100


class View(Protocol[T]):
    """See the module."""

    whole: Whole | None
    """Which lines are of interest; None where every line is shown."""
    default_count: int | None
    """Items of each file that are shown without ``-n``; None is all."""

    def pick(self, line: Line) -> Iterable[T]:
        """Return the items of a line."""

    def grouping(self, item: T) -> tuple[Hashable, Hashable]:
        """Say which items only repeat others; see `hpcjob.logs.file_tail.Grouping`."""

    def accept(self, item: T) -> None:
        """Show an item, or take it into the report."""

    def tick(self, *, final: bool) -> None:
        """All that is there has been accepted; ``final``: and nothing more will come."""


class LinesView:
    """The lines as they are; a heading where the file changes, as ``tail`` of several files has it."""

    whole: Whole | None = None
    default_count: int | None = 10

    def __init__(self, output: Output, *, headings: bool) -> None:
        self._output = output
        self._headings = headings
        self._source: str | None = None

    def pick(self, line: Line) -> Iterable[Line]:
        return (line,)

    def grouping(self, item: Line) -> tuple[Hashable, Hashable]:
        return alone(item)

    def accept(self, item: Line) -> None:
        if self._output.json:
            self._output.event(LogLine(**origin(item), text=item.text))
            return
        if self._headings and item.source != self._source:
            first = self._source is None
            self._source = item.source
            self._output.text(f"{'' if first else chr(10)}==> {printable(item.source)} <==", "header")
        self._output.text(item.shown)

    def tick(self, *, final: bool) -> None:
        pass


_LATEST_KEPT = 64  # iterations whose ranks are compared


class LossView:
    """The iteration table.

    DeepSpeed's pipeline engine and the trainer may both print a line for an iteration: the engine's comes first and is
    held back until it is clear that the other does not come. So is the line of a load that tells the path alone: the
    iteration stands in the next one. Rows before the first iteration wait for it, since it
    tells how wide the columns are.

    Args:
        one_run: the files are of one run, so that an iteration that several of them tell is shown once.

    Attributes:
        shown: how many events were shown.
    """

    default_count: int | None = 20

    def __init__(self, output: Output, metrics: Metrics, *, one_run: bool = False) -> None:
        self._output = output
        self._metrics = metrics
        self._one_run = one_run and not output.json
        self._table = IterationTable(tokens=False)
        self._held: Event | None = None
        self._early: list[Event] = []
        self._training = TrainingReader()
        self._before: tuple[int, str | None, float | None] | None = None
        self._grouped: tuple[int, float | None] | None = None
        self._groups = 0
        self.shown = 0
        self._rows_since_header: int | None = None
        self._teller: str | None = None
        self._told = -1
        self._latest: dict[int, tuple[int, tuple[str | None, float | None]]] = {}
        self.whole: Whole | None = self

    def shapes(self, last: int | None = None) -> Shapes:
        """Return the shapes of lines of interest; if the ``last`` rows are enough, of those that come last."""
        rows = parse.TABLE_NEEDLES
        others = (b"seq_length .", *(parse.NEEDLES if self._output.json else ()))
        if last is None or self._output.json or last > _RECENT_AT_MOST:
            return Shapes([(Interest.ALL, (*rows, *others))], bounded=False, numbered=self._output.json)
        # A block with such lines has one row at least, save where its words have another meaning.
        return Shapes(
            [(Interest.ALL, others), (Interest.LAST, rows)], bounded=False, recent=2 * last + 8, numbered=False
        )

    def pending(self) -> bool:
        """No event goes over several lines."""
        return False

    def pending_in(self, source: str) -> bool:
        """No event goes over several lines."""
        return False

    def pick(self, line: Line) -> Iterable[Event]:
        events = self.pick_all(line)
        return events if self._output.json else [event for event in events if isinstance(event, TABLE)]

    def pick_all(self, line: Line) -> list[Event]:
        """Return all events of training that a line tells, rows of the table or not."""
        if self._metrics.sequence_length is None and "seq_length ." in line.text:
            self._metrics.sequence_length = sequence_length(line.text)
        return self._training.read(line)

    def accept(self, item: Event) -> None:
        if isinstance(item, Iteration) and ((self._one_run and self._told_by_another(item)) or self._is_copy(item)):
            return
        held, self._held = self._held, None
        if isinstance(held, Checkpoint) and _is_load(item, with_path=False):
            item = msgspec.structs.replace(item, path=held.path)
        elif held is not None and not _is_of_engine(held, item):
            self._show(held)
        half = not self._output.json and _is_load(item, with_path=True)
        if half or (isinstance(item, Iteration) and item.shape == "deepspeed"):
            self._held = item
        else:
            self._show(item)

    def grouping(self, item: Event) -> tuple[Hashable, Hashable]:
        """What `accept` drops is no row of its own: copies by other ranks, DeepSpeed's line of an iteration that the
        trainer tells too, and that of a load whose iteration is in the next one."""
        if not self._output.json and isinstance(item, Checkpoint):
            return _is_load(item, with_path=False) or None, _is_load(item, with_path=True) or None
        if self._output.json or not isinstance(item, Iteration) or item.iteration is None:
            return None, None
        if item.rank is None and item.shape == "steps":
            said = item.iteration, item.loss
            if said != self._grouped:
                self._grouped = said
                self._groups += 1
            return self._groups, self._groups
        if item.rank is not None:
            copy = (item.iteration, item.shape, item.loss)
            return copy, copy
        if item.shape == "deepspeed":
            return None, item.iteration
        return item.iteration, None

    def filled(self, event: Iteration) -> Iteration:
        """Return an iteration with what the trainer's metrics add."""
        return self._metrics.fill(event)

    def _told_by_another(self, item: Iteration) -> bool:
        """Whether another file has told of this iteration: where each rank writes its own, all say the same."""
        if item.iteration is None:
            return False
        if self._teller not in (None, item.source) and item.iteration <= self._told:
            return True
        self._teller, self._told = item.source, item.iteration
        return False

    def _is_copy(self, item: Iteration) -> bool:
        """Whether another rank has said the same of this iteration, as where torchtitan logs on all of them; without
        prefixes only where nothing else stands between."""
        if item.iteration is None or self._output.json:
            return False
        said = item.shape, item.loss
        if item.rank is None:
            last, self._before = self._before, (item.iteration, *said)
            return self._before == last
        rank, before = self._latest.get(item.iteration, (item.rank, said))
        if rank != item.rank and said == before:
            return True
        self._latest[item.iteration] = item.rank, said
        if len(self._latest) > _LATEST_KEPT:
            del self._latest[next(iter(self._latest))]
        return False

    def new_job(self) -> None:
        """Another job goes on with the run, perhaps from an earlier iteration."""
        self._teller = None

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
        told = self._metrics.sequence_length is not None  # a checkpoint's row alone must not change the column
        tokens = self._table.tokens or told or (isinstance(event, Iteration) and event.tokens_per_s is not None)
        every = self._output.rows_between_headers
        due = self._rows_since_header is None or (every is not None and self._rows_since_header >= every)
        wider = self._table.fit(event)
        if due or wider or tokens != self._table.tokens:
            self._table.tokens = tokens
            self._output.text(self._table.header(), "header")
            self._rows_since_header = 0


def _is_of_engine(held: Event, item: Event) -> bool:
    """Whether the engine's line is of the iteration that the trainer tells now."""
    return isinstance(held, Iteration) and isinstance(item, Iteration) and held.iteration == item.iteration


def _is_load(event: Event, *, with_path: bool) -> TypeGuard[Checkpoint]:
    """Whether an event is one half of a load: its path alone, or its iteration alone."""
    if not isinstance(event, Checkpoint) or event.action != "loaded":
        return False
    return (event.path is not None) is with_path and (event.iteration is None) is with_path


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

    def pending_in(self, source: str) -> bool:
        """Whether the next line of this file does."""
