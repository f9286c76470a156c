"""Where a run stands, for the line at the bottom: iteration, loss, rates, time left, next checkpoint, walltime."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from hpcjob.logs.events import Checkpoint, Event, Iteration
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line
from hpcjob.logs.since import time_in
from hpcjob.logs.table import duration, rate_text, tflops_text

_EVERY = lazy(
    r"\b(?:checkpoint_factor|save_interval|save-interval|save_steps)['\"]?(?: \.{2,200} ?|: |=| = )(\d{1,12})\b"
)
_STARTED = lazy(r"hpcjob: \d{4}-\d\d-\d\dT\S+ job \S+ on ")
NEEDLES = (b"checkpoint_factor", b"save_interval", b"save-interval", b"save_steps", b"hpcjob: ")
_SILENT_ITERATIONS = 10
_SILENT_S = 60.0


def checkpoint_interval(text: str) -> int | None:
    """Return the iterations between checkpoints that a list of arguments or a configuration tells."""
    match = _EVERY.search(text)
    return int(match[1]) or None if match is not None else None


class Progress:
    """The latest of all.

    Args:
        walltime_s: limit of the job; every: iterations between two checkpoints; both None if not known.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        *,
        walltime_s: float | None = None,
        every: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.last: Iteration | None = None
        self._walltime_s = walltime_s
        self._every = every
        self._clock = clock
        self._started_s: float | None = None
        self._came_s: float | None = None
        self._interval = 1
        self._saved: list[int] = []

    def line(self, line: Line) -> None:
        """Take in what a line says beside events: the job's start, arguments."""
        text = line.text
        if self._every is None and ("checkpoint_factor" in text or "save" in text):
            self._every = checkpoint_interval(text)
        if text.startswith("hpcjob: ") and _STARTED.match(text):
            self._started_s = time_in(text)

    def event(self, event: Event) -> None:
        """Take an event in."""
        if isinstance(event, Iteration):
            if event.iteration is None and self.last is not None and self.last.iteration is not None:
                return
            before = None if self.last is None else self.last.iteration
            if before is not None and event.iteration is not None and event.iteration > before:
                self._interval = event.iteration - before
            self.last = event
            self._came_s = self._clock()
        elif isinstance(event, Checkpoint) and event.iteration is not None and event.action == "saved":
            self._saved = [*[one for one in self._saved if one < event.iteration], event.iteration][-2:]

    def new_job(self, walltime_s: float | None) -> None:
        """Another job goes on with the run."""
        self._walltime_s, self._started_s = walltime_s, None

    def fields(self, *, live: bool) -> list[str]:
        """Return what is known, the most wanted first; ``live``: the log may still grow."""
        event = self.last
        found: list[str | None] = []
        if event is not None:
            found = [
                self._iteration(event),
                None if event.loss is None else f"loss {event.loss:.4g}",
                _rate(event),
                _utilisation(event),
                self._eta(event),
                self._next_checkpoint(event),
            ]
        if live:
            found += [self._walltime_left(), self._silence(event)]
        return [field for field in found if field]

    def _iteration(self, event: Iteration) -> str | None:
        if event.iteration is None:
            return None if event.epoch is None else f"epoch {event.epoch:g}"
        return f"iteration {event.iteration}" + (f"/{event.train_iters}" if event.train_iters else "")

    def _eta(self, event: Iteration) -> str | None:
        if event.train_iters is None or event.iteration is None or not (seconds := _iteration_s(event)):
            return None
        return f"ETA {duration((event.train_iters - event.iteration) * seconds)}"

    def _next_checkpoint(self, event: Iteration) -> str | None:
        every = self._every
        if every is None and len(self._saved) == 2:
            every = self._saved[1] - self._saved[0]
        if not every or event.iteration is None:
            return None
        left = every - event.iteration % every
        if event.train_iters is not None:
            left = min(left, max(0, event.train_iters - event.iteration))
        seconds = _iteration_s(event)
        return f"checkpoint in {duration(left * seconds) if seconds else f'{left} iterations'}"

    def _walltime_left(self) -> str | None:
        if self._walltime_s is None or self._started_s is None:
            return None
        return f"walltime left {duration(self._walltime_s - (self._clock() - self._started_s))}"

    def _silence(self, event: Iteration | None) -> str | None:
        """Say since when nothing came, if that is far longer than it should be: a hang is seen by what is not there."""
        if event is None or self._came_s is None or (seconds := _iteration_s(event)) is None:
            return None
        silent_s = self._clock() - self._came_s
        if silent_s < max(_SILENT_S, _SILENT_ITERATIONS * self._interval * seconds):
            return None
        return f"NO ITERATION FOR {duration(silent_s)}"


def _iteration_s(event: Iteration) -> float | None:
    time_ms = event.iteration_time_ms
    return None if time_ms is None or not math.isfinite(time_ms) or time_ms <= 0 else time_ms / 1000


def _rate(event: Iteration) -> str | None:
    if event.tokens_per_s is not None:
        return f"{rate_text(event.tokens_per_s)} tokens/s"
    return None if event.samples_per_s is None else f"{rate_text(event.samples_per_s)} samples/s"


def _utilisation(event: Iteration) -> str | None:
    if event.mfu_percent is not None:
        return f"MFU {event.mfu_percent:.1f}%"
    return f"{tflops_text(event.tflops)} TFLOPS" if event.tflops else None
