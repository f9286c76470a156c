"""The default view of ``hpcjob tail``: iterations and what needs attention, floods folded, and where the run stands.

Lines of all files are read: iterations come from whichever file tells them first, errors from every rank, and what
NCCL says becomes one line. Until a run has told of an iteration its other lines are shown as they are, since nothing
better is known of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable

from hpcjob.logs import parse
from hpcjob.logs.events import Event, Iteration, Job, origin
from hpcjob.logs.failures import FailureReport
from hpcjob.logs.filters import LineFilter
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.nccl_line import fold_nccl
from hpcjob.logs.output import Output
from hpcjob.logs.progress import NEEDLES, Progress
from hpcjob.logs.report import Row, Shown
from hpcjob.logs.report_view import show_row
from hpcjob.logs.shapes import Interest, Shapes
from hpcjob.logs.table import TABLE
from hpcjob.logs.views import LossView
from hpcjob.logs.wanted import Wanted
from neoxlite.common.printable import printable

_ATTENTION = ("cause", "symptom", "warning")
PLAIN_LINES = 10
"""Of a log without iterations, shown as they are."""
_STARTED = lazy(r"hpcjob: \d{4}-\d\d-\d\dT\S+ job (?P<id>\S+) on \S+")


class Digest:
    """Takes lines in, and shows what of them is worth it.

    Args:
        table: shows iterations, validation and checkpoints.
        main: whether a file (by its path) is one whose lines are shown as they are before the first iteration.
        link_gbps: rate of a network adapter by the job's profile.
        wanted: which lines count at all.

    Attributes:
        iterations: how many were seen; rows: of the table.
        tellers: files that tell of iterations.
    """

    default_count = 20

    def __init__(
        self,
        output: Output,
        table: LossView,
        failures: FailureReport,
        progress: Progress,
        *,
        main: Callable[[str], bool],
        link_gbps: float | None = None,
        wanted: LineFilter | None = None,
    ) -> None:
        self.iterations = 0
        self.rows = 0
        self._output = output
        self._table = table
        self._failures = failures
        self._nccl = NcclReport(listening=True)
        self._progress = progress
        self._main = main
        self._link_gbps = link_gbps
        self._wanted = wanted or LineFilter()
        self._shown = Shown(seldom=True)
        self._kept: deque[Event] | None = None
        self._shapes: Shapes | None = None
        self.tellers: set[str] = set()
        self._next: list[Job] = []
        self._plain = not output.json
        self._live = False
        self._nccl_shown: tuple[str, bool] | None = None
        self._quiet = False
        self._nccl_read = False

    def rows_of(self, line: Line) -> Iterable[Event]:
        """Return the rows of the table that a line makes."""
        return () if self._excluded(line) else self._table.pick(line)

    def grouping(self, event: Event) -> tuple[Hashable, Hashable]:
        """Say which rows only repeat others."""
        return self._table.grouping(event)

    def wanted_for_rows(self) -> Wanted:
        """Return which lines make rows."""
        return Wanted(self._table.shapes(), self._table.pending_in)

    def wanted(self, *, rows: bool) -> Wanted:
        """Return which lines of the files to read; without ``rows`` of those of the table, until all has been caught
        up with, some are enough."""
        needles: list[tuple[Interest, Iterable[bytes]]] = [
            (Interest.ALL, (*parse.NEEDLES, *NEEDLES, b"seq_length .", b"heckpoint")),
            *self._failures.interests(),
            *self._nccl.interests(),
            (Interest.ALL if rows else Interest.LAST, parse.TABLE_NEEDLES),
        ]
        self._shapes = Shapes(needles)
        return Wanted(self._shapes, self._pending)

    def _pending(self, source: str) -> bool:
        return (self._live and self._plain and self._main(source)) or self._failures.pending_in(source)

    def collect(self, *, most: int | None = None) -> None:
        """Keep rows until `caught_up`, at most the last ones."""
        self._kept = deque(maxlen=most)

    def glimpse(self, line: Line) -> None:
        """See what a line that has not ended tells: it counts for the status only."""
        if not self._excluded(line):
            for event in parse.parse(line):
                if isinstance(event, Iteration):
                    self._progress.event(event)

    def learn(self, line: Line) -> None:
        """Take in a line from before what is to be shown: it may tell of NCCL, or how often the run saves."""
        self._quiet = True
        self.read(line, rows=False)
        self._quiet = False

    def row(self, event: Event) -> None:
        """Take in an event that was looked for."""
        self._training(event, row=True)

    def read(self, line: Line, *, rows: bool = True) -> None:
        """Take a line in; without ``rows`` its iterations are not for the table."""
        if self._excluded(line):
            return
        self._progress.line(line)
        told = self._starts(line)
        if "NCCL" in line.text:
            self._nccl_read = True
            self._events(self._nccl.read(line))
            told = told or " NCCL " in line.prefix + line.text
        else:
            for event in self._table.pick_all(line):
                told = True
                self._training(event, row=rows)
        if self._quiet:
            return
        errors = self._failures.read(line)
        self._events(errors)
        if self._live and self._plain and not told and not errors and self._main(line.source):
            self._output.text(line.shown)

    def _starts(self, line: Line) -> bool:
        match = _STARTED.match(line.text)
        if match is None or self._quiet:
            return False
        if self._output.json:
            self._output.event(Job(**origin(line), action="started", id=match["id"]))
        elif self._live:
            self._output.text(line.text, "header")
        return self._live

    def _training(self, event: Event, *, row: bool) -> None:
        if isinstance(event, Iteration):
            event = self._table.filled(event)
            self.iterations += 1
            self.tellers.add(event.source)
            if self._live:
                self._plain = False
        self._progress.event(event)
        if not row or not (self._output.json or isinstance(event, TABLE)):
            return
        self.rows += 1
        if self._kept is not None:
            self._kept.append(event)
        else:
            self._table.accept(event)

    def _events(self, events: Iterable[Event]) -> None:
        if self._output.json and not self._quiet:
            for event in events:
                self._output.event(event)

    @property
    def wants_plain(self) -> bool:
        """Whether the last lines of the main files are to be shown as they are: there is no iteration."""
        return self._plain and not self.iterations

    def is_plain(self, line: Line) -> bool:
        """Whether a line is one of these, and not of a flood: of NCCL, or the C++ frames below a warning of torch."""
        of_flood = "NCCL INFO" in line.text or line.text.startswith(("NCCL version ", "frame #"))
        return self._main(line.source) and not of_flood and not self._excluded(line)

    def _excluded(self, line: Line) -> bool:
        return self._wanted.active and not self._wanted.wants(line)

    def caught_up(self, plain: Iterable[Line] = ()) -> None:
        """All that was there has been read: show it, and from now on what comes."""
        self._live = True
        if self._shapes is not None:
            self._shapes.want_all()
        self._fold(final=False)
        for line in plain:
            self._output.text(line.shown)
        self._plain = self.wants_plain
        kept, self._kept = self._kept, None
        for event in kept or ():
            if isinstance(event, Job):
                self._announce(event)
            else:
                self._table.accept(event)

    def job_changed(self, event: Job, walltime_s: float | None) -> None:
        """Another job goes on with the run; it is said once the files of the one before have been read."""
        self._next.append(event)
        self._progress.new_job(walltime_s)

    def announce(self) -> None:
        """What comes now is of the next job, if there is one."""
        changes, self._next = self._next, []
        for event in changes:
            if self._kept is not None:
                self._kept.append(event)
            else:
                self._announce(event)

    def _announce(self, event: Job) -> None:
        self._table.new_job()
        if self._output.json:
            self._output.event(event)
        else:
            self._output.text(f"==> job {event.after} has ended; the run continues in job {event.id}", "header")

    def restarted(self, source: str) -> None:
        """A file was written anew, as by a job that was requeued."""
        self._table.new_job()
        if not self._output.json:
            self._output.text(f"==> {printable(source)} begins again", "header")

    def tick(self, *, final: bool) -> None:
        """All that is there has been read; ``final``: and nothing more will come."""
        if final:
            self._events(self._failures.finish())
            self._events([*self._failures.summary(), *self._nccl.summary()])
        self._table.tick(final=final)
        self._fold(final=final)
        if self._output.json:
            return
        rows = list(self._failures.rows())
        blaming = any(row.role in ("cause", "symptom") for row in rows)
        for row, again in self._shown.changed(row for row in rows if self._matters(row, blaming=blaming)):
            show_row(self._output, row, again=again)
        self._output.status(self._progress.fields(live=not final))

    def _matters(self, row: Row, *, blaming: bool) -> bool:
        return row.role in _ATTENTION or (row.role == "follower" and not blaming) or row.key == "ended"

    def _fold(self, *, final: bool) -> None:
        """Show NCCL's line once its ranks have started, or training goes on, or nothing more will come; and again when
        something has gone wrong since."""
        if self._output.json or not self._nccl.seen or not (self._nccl_read or self._nccl_shown is None):
            return
        self._nccl_read = False
        folded = fold_nccl(self._nccl, link_gbps=self._link_gbps)
        if self._nccl_shown is None:
            if not (folded.settled or final or self.iterations):
                return
        elif self._nccl_shown == (folded.text, folded.ok) or (self._nccl_shown[1] and folded.ok):
            return
        self._nccl_shown = (folded.text, folded.ok)
        self._output.text(folded.text, "" if folded.ok else "warning")
