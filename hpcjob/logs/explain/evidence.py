"""What the lines of a job say, gathered for a verdict: errors by kind, network by host, progress, who waited."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable

import msgspec

from hpcjob.logs import trainer_rows
from hpcjob.logs.errors import ErrorReader, needles
from hpcjob.logs.events import Checkpoint, Event, Finding, Iteration, ProcessEnd, Traceback
from hpcjob.logs.explain.clock import is_earlier, seconds
from hpcjob.logs.explain.ends import Ends
from hpcjob.logs.explain.flight.dump import Dump
from hpcjob.logs.explain.network import Network
from hpcjob.logs.explain.outlived import Lifetimes
from hpcjob.logs.explain.waits import WAITING, Wait, note
from hpcjob.logs.failures import key_of, role_of
from hpcjob.logs.fold import Fold, Group
from hpcjob.logs.identity import Identity
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.prefixes import told
from hpcjob.logs.rulebook import Rulebook, load
from hpcjob.logs.shapes import Interest, Shapes
from hpcjob.logs.training import TrainingReader
from hpcjob.logs.versions import SOFTWARE

_PROGRESS = (b"iteration", b"steps: ", b"loss", b"Loss", b"LOSS", b"[step=", b"[batch=", *trainer_rows.NEEDLES)
# Where a loss stops being a number the first line counts, not the last one of a block.
_NOT_FINITE = tuple(
    name + mark + word
    for name in (b"loss", b"LOSS", b"norm")
    for mark in (b": ", b"': ", b"=", b" ")
    for word in (b"nan", b"NaN", b"NAN", b"inf", b"Infinity")
)
_ERRORS = ("cause", "symptom", "follower")
_FLOODS = (b"Channel ", b"via P2P/", b"via NET/", b"Trees [", b"Ring ")
_RANKS = lazy(rb"\[rank(\d{1,7})\]:|\[\d{1,4},(\d{1,7})\]<std")
_TASKS = lazy(rb"^ {0,6}(\d{1,7}): ", re.MULTILINE)


class Blamed(msgspec.Struct, frozen=True):
    """Errors that are alike, and when the first of them came.

    Attributes:
        order: place in the reading order.
        time_s: seconds since the epoch by the log's own clock, None where it has none.
    """

    group: Group[Event]
    order: int
    time_s: float | None


class Evidence:
    """Read lines of all files, file by file."""

    def __init__(self, book: Rulebook) -> None:
        self.identity = Identity()
        self.nccl = NcclReport(listening=True)
        self.waits: dict[int, Wait] = {}
        self.lost: Counter[str] = Counter()
        """Hosts by how many processes say that they lost them."""
        self.first_to_fail: int | None = None
        """The rank that failed first by the tables of torchrun, of which each node may have written one; where there is
        none by the job's script, then by srun."""
        self._first_failed: str | None = None
        self._ends = Ends()
        self.last: Iteration | None = None
        self.saved: Checkpoint | None = None
        self.saved_s: float | None = None
        """When the last checkpoint was saved, by the log's clock."""
        self.started_s: float | None = None
        self.ended_s: float | None = None
        """The earliest and the latest time of any line that was read."""
        self.diverged: Iteration | None = None
        """The first of the iterations whose loss or gradient was not finite, if the log ends with such."""
        self.seen: dict[int, Event | None] = {}
        """Ranks that wrote anything, and their latest iteration."""
        self.network = Network()
        self.software: dict[str, str] = {}
        """Versions that the log tells, by name: ``nccl``, ``torch``, ``cuda``."""
        self.dumps: dict[int, Dump] = {}
        """What PyTorch's flight recorder wrote, by rank."""
        self.unread: list[str] = []
        """Files of the recorder that could not be read, and why."""
        self.aborted: set[int] = set()
        """Ranks whose communicator was aborted, as by their own watchdog."""
        self.passed: list[Blamed] = []
        """Errors that the run outlived, once all files have been read."""
        self.lines = 0
        self._book = book
        self._reader = ErrorReader(book)
        self._training = TrainingReader()
        self._fold: Fold[Event] = Fold()
        self._lifetimes = Lifetimes()
        self._when: dict[Hashable, tuple[int, float | None]] = {}
        self._clock: dict[str, str] = {}
        self._order = 0

    def shapes(self) -> Shapes:
        """Return what makes a line worth reading here."""
        return Shapes(
            [
                (Interest.ALL, self._book.literals),
                (Interest.ALL, needles()),
                (Interest.ALL, (b"heckpoint", b"via SHM/", b"via direct shared", b"NET/Socket/", b"<0>")),
                (Interest.ALL, (literal for literal in load("nccl").literals if literal not in _FLOODS)),
                (Interest.SOME, _FLOODS),
                (Interest.ALL, _NOT_FINITE),
                (Interest.LAST, _PROGRESS),
            ]
        )

    def census(self, block: bytes) -> None:
        """Count the ranks that wrote any of these lines, by their prefixes."""
        if b"[rank" in block or b"]<std" in block:
            found = {one or other for one, other in _RANKS.findall(block)}
        elif _TASKS.match(block) is not None:
            found = set(_TASKS.findall(block))
        else:
            return
        for rank in found:
            self.seen.setdefault(int(rank), None)

    def pending(self) -> bool:
        """Whether the next line belongs to one that began."""
        return self._reader.unfinished

    def read(self, line: Line) -> None:
        """Take a line in."""
        self.lines += 1
        if line.time is not None:
            self._tick(line)
        self.identity.read(line)
        rank = self.identity.rank(line)
        if rank is not None:
            self.seen.setdefault(rank, None)
            if line.rank is None:
                line = msgspec.structs.replace(line, rank=rank)
        if "NCCL INFO" in line.text or line.text.startswith("NCCL version"):
            self._information(line)
        for event in self._reader.read(line):
            self._error(event, line)
        if "NCCL" not in line.text:
            for event in self._training.read(line):
                self._progress(event)

    def _tick(self, line: Line) -> None:
        assert line.time is not None
        self._clock[line.source] = line.time
        time_s = seconds(line.time)
        if time_s is None:
            return
        if self.started_s is None or time_s < self.started_s:
            self.started_s = time_s
        if self.ended_s is None or time_s > self.ended_s:
            self.ended_s = time_s

    def end_of_file(self) -> None:
        """No line of this file will follow."""
        for event in self._reader.finish():
            self._error(event, None)

    def settle(self) -> None:
        """All files have been read: set apart what the run outlived, and decide which rank failed first."""
        if self.first_to_fail is None:
            self.first_to_fail = self._ends.first
        groups = self._fold.groups
        for key in [key for key in groups if self._lifetimes.outlived(key)]:
            self.passed.append(Blamed(groups.pop(key), *self._when[key]))
        if not self.passed:
            return
        left = [group.first for group in groups.values() if role_of(group.first) in _ERRORS]
        if not any(isinstance(event, ProcessEnd) for event in left):
            self.first_to_fail = None
        if not any(getattr(event, "rule", None) in WAITING for event in left):
            self.waits.clear()
        if not any(getattr(event, "topic", None) == "network" for event in left):
            self.lost.clear()

    def blamed(self, *roles: str) -> list[Blamed]:
        """Return the errors of these roles."""
        return [
            Blamed(group, *self._when[key]) for key, group in self._fold.groups.items() if role_of(group.first) in roles
        ]

    def fix(self, event: Event) -> str | None:
        """Return what to do about an error, for the versions that the log tells."""
        if not isinstance(event, Finding | Traceback):
            return None
        rule = None if event.rule is None else self._book.rule(event.rule)
        if rule is None or event.fix != rule.fix:
            return event.fix  # what the program itself advised
        return rule.fix_for(self.software)

    def _information(self, line: Line) -> None:
        for finding in self.nccl.read(line):
            self.network.note(finding, line.host or "")
            if finding.rule == "nccl-version":
                self.software.setdefault("nccl", finding.fields["version"])
            elif finding.rule == "nccl-end" and finding.fields["how"] == "Abort" and line.rank is not None:
                self.aborted.add(line.rank)
            if finding.role == "warning":
                self._error(finding, line)

    def _error(self, event: Event, line: Line | None) -> None:
        self._order += 1
        if isinstance(event, ProcessEnd):
            if event.root_cause and is_earlier(event.time, self._first_failed):
                self.first_to_fail, self._first_failed = event.rank, event.time or ""
            if event.rank is not None and event.host is not None:
                self.identity.name(event.rank, event.host)
        if isinstance(event, Finding):
            event = self._finding(event)
        key = key_of(event)
        self._place(key, event, event.offset if line is None else line.offset)
        group = self._fold.add(key, event, line)
        time_s = seconds(event.time or self._clock.get(event.source))
        known = self._when.get(key)
        if known is None:
            self._when[key] = self._order, time_s
        elif time_s is not None and known[1] is not None and time_s < known[1]:
            group.first = event  # read later, happened earlier
            self._when[key] = known[0], time_s

    def _place(self, key: Hashable, event: Event, offset: int) -> None:
        rule = getattr(event, "rule", None)
        if rule == "training-finished":
            self._lifetimes.finish(event.source, offset)
        elif rule == "workers-restarted":
            self._lifetimes.restart(event.source, offset)
        elif role_of(event) in _ERRORS:
            self._lifetimes.error(key, event.source, offset, event.rank)

    def _finding(self, event: Finding) -> Finding:
        fields = event.fields
        peer = fields.get("peer")
        if peer and event.topic == "network" and not peer.startswith(("127.", "::1", "localhost")):
            self.lost[self.identity.host(peer.partition(":")[0] if peer.count(":") == 1 else peer)] += 1
        rank, host = fields.get("rank"), told(fields.get("host") or fields.get("node"))
        changes: dict[str, object] = {}
        for name in SOFTWARE:
            if fields.get(name):
                self.software.setdefault(name, fields[name])
        if rank and event.rank is None and rank.isdigit():
            changes["rank"] = int(rank)
        if host:
            changes["host"] = host
            self.identity.hosts.add(host)
        event = msgspec.structs.replace(event, **changes) if changes else event
        if event.rule in WAITING:
            note(event, self.waits)
        self._ends.read(event, self.identity)
        return event

    def _progress(self, event: Event) -> None:
        if isinstance(event, Iteration):
            self._lifetimes.iteration(event.source, event.offset, event.rank)
            if event.iteration is not None and event.iteration >= (self.last.iteration or 0 if self.last else 0):
                self.last = event
            if event.rank is not None:
                self.seen[event.rank] = event
            if event.finite:
                self.diverged = None
            elif not event.skipped and self.diverged is None:
                self.diverged = event
        elif isinstance(event, Checkpoint) and event.iteration is not None and event.action != "saving":
            before = None if self.saved is None else self.saved.iteration
            if before is None or event.iteration >= before:
                self.saved = event
                self.saved_s = seconds(event.time or self._clock.get(event.source))
