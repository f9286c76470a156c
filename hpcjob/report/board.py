"""What the live screen shows: jobs with their states, the last losses of each, and the lines of one log."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcjob.errors import HpcjobError
from hpcjob.logs.events import Iteration
from hpcjob.logs.follow import Follower
from hpcjob.logs.lines import Line
from hpcjob.logs.table import duration
from hpcjob.logs.target import Target
from hpcjob.logs.training import TrainingReader
from hpcjob.logs.wanted import Wanted
from hpcjob.report.collect import shapes
from hpcjob.tracking.index import Index, read_index
from hpcjob.tracking.lookup import find_job
from hpcjob.tracking.records import Record
from hpcjob.tracking.status import Status
from hpcjob.tracking.watch import refresh

LOSSES_KEPT = 200
LINES_FIRST = 200
_ENDED_SHOWN = 10
_FEEDS_AT_MOST = 50


@dataclass
class Progress:
    """How far a job has come, by its log.

    Attributes:
        losses: the last ones that are finite, oldest first.
    """

    latest: Iteration | None = None
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=LOSSES_KEPT))

    def take(self, event: Iteration) -> None:
        """Take an iteration in."""
        self.latest = event
        if event.loss is not None and math.isfinite(event.loss):
            self.losses.append(event.loss)

    @property
    def text(self) -> str:
        """``iteration 120/1000, loss 2.31, 3:20 left``; empty if nothing is known."""
        event = self.latest
        if event is None:
            return ""
        parts = []
        if event.iteration is not None:
            parts.append(f"{event.iteration}" + (f"/{event.train_iters}" if event.train_iters else ""))
        if event.loss is not None:
            parts.append(f"loss {event.loss:.4f}" if math.isfinite(event.loss) else "loss NOT FINITE")
        if event.iteration is not None and event.train_iters and event.iteration_time_ms:
            left_s = (event.train_iters - event.iteration) * event.iteration_time_ms / 1000
            if math.isfinite(left_s) and left_s > 0:
                parts.append(f"{duration(left_s)} left")
        return ", ".join(parts)


class Feed:
    """The log of one job, read as it grows. Not for two threads at once."""

    def __init__(self, record: Record) -> None:
        self.progress = Progress()
        self._provider = target_of(record).provider("loss", None)
        self._losses: Follower | None = None
        self._lines: Follower | None = None
        self._training = TrainingReader()

    def read_progress(self) -> Progress:
        """Return how far the job has come now."""
        with contextlib.suppress(HpcjobError):  # the log's own lines will say it
            for event in self._new_iterations():
                self.progress.take(event)
        return self.progress

    def _new_iterations(self) -> Iterator[Iteration]:
        if self._losses is None:
            self._losses = Follower(self._provider, wanted=Wanted(shapes()))
            yield from self._losses.last(LOSSES_KEPT, self._iterations, final=False)
        else:
            for line in self._losses.poll():
                yield from self._iterations(line)

    def _iterations(self, line: Line) -> list[Iteration]:
        return [event for event in self._training.read(line) if isinstance(event, Iteration)]

    def new_lines(self, *, anew: bool = False) -> list[str]:
        """Return the lines that have come since the last call; the first time, or ``anew``, the last `LINES_FIRST`."""
        try:
            if self._lines is None or anew:
                if self._lines is not None:
                    self._lines.close()
                self._lines = Follower(self._provider)
                return [line.shown for line in self._lines.last(LINES_FIRST, lambda line: (line,), final=False)]
            return [line.shown for line in self._lines.poll()]
        except HpcjobError as error:
            return [f"hpcjob: {error.message}"]

    def close(self) -> None:
        """Close the files."""
        for follower in (self._losses, self._lines):
            if follower is not None:
                follower.close()


def target_of(record: Record) -> Target:
    """Return the logs of a job."""
    return Target(() if record.log is None else (Path(record.log),), record.jobdir, record.job_id)


@dataclass(frozen=True)
class Shown:
    """A job as the screen shows it."""

    record: Record
    status: Status
    progress: Progress


class Board:
    """The jobs that are watched; may be asked from several threads.

    Args:
        names: these alone; without names those that have not ended and the last few that have.
        everything: all that are recorded.
    """

    def __init__(self, names: Sequence[str] = (), *, everything: bool = False) -> None:
        self.names = tuple(names)
        self.everything = everything
        self.index: Index = read_index()
        self._feeds: dict[tuple[str, str, str, str], Feed] = {}
        self._lock = threading.Lock()

    def poll(self) -> list[Shown]:
        """Ask for the states and read what was logged.

        Raises:
            UnknownJobError: a name means no job.
        """
        self.index = read_index()
        records = self._records()
        statuses = refresh(records, self.index)
        return [Shown(one, statuses[one], self._progress(one, number)) for number, one in enumerate(records)]

    def _records(self) -> list[Record]:
        if self.names:
            return list(dict.fromkeys(find_job(name, self.index) for name in self.names))
        if self.everything:
            return list(self.index.records)
        ended = [record for record in self.index.records if self.index.ended(record)][:_ENDED_SHOWN]
        return [record for record in self.index.records if not self.index.ended(record) or record in ended]

    def _progress(self, record: Record, number: int) -> Progress:
        if number >= _FEEDS_AT_MOST and record.key not in self._feeds:
            return Progress()
        return self.progress_of(record)

    def progress_of(self, record: Record) -> Progress:
        """Return how far a job has come now."""
        with self._lock:
            return self._feed(record).read_progress()

    def lines_of(self, record: Record, *, anew: bool = False) -> list[str]:
        """Return new lines of a job's log, see `Feed.new_lines`."""
        with self._lock:
            return self._feed(record).new_lines(anew=anew)

    def _feed(self, record: Record) -> Feed:
        if record.key not in self._feeds:
            self._feeds[record.key] = Feed(record)
        return self._feeds[record.key]

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            for feed in self._feeds.values():
                feed.close()
            self._feeds.clear()


def check_names(names: Sequence[str]) -> None:
    """Raise UnknownJobError for a name that means no job."""
    index = read_index()
    for name in names:
        find_job(name, index)


def explain_lines(record: Record) -> list[tuple[str, str]]:
    """Return what ``hpcjob explain`` says of a job, as (role, text)."""
    from hpcjob.logs.explain.command import explained
    from hpcjob.logs.explain.words import lines_of

    verdict = explained((f"{record.profile}:{record.id}",))
    return [("", "no log yet")] if verdict is None else list(lines_of(verdict))
