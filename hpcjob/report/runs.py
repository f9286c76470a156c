"""Runs: attempts put together, so that each iteration has the numbers of the attempt that the run went on from.

The last attempt stands. Before it stands, up to the iteration it began from, the latest earlier attempt that had come
so far, and so on back to the first: what was lost in a crash and done again is counted, and its first try is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hpcjob.report.attempts import Attempt, Log
from hpcjob.report.quantities import NAMES
from hpcjob.report.tables import Ints, Table, empty, joined


@dataclass(frozen=True)
class Restart:
    """Where a run went on.

    Attributes:
        at: iterations that were done before; the next one is the first of the new attempt.
        repeated: iterations that were done again.
        source: log of the new attempt.
    """

    at: int
    repeated: int
    source: str


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        name: as the user knows it.
        table: one row for each iteration that counts.
        attempts: [rows], number of the attempt that did it, from 1.
        restarts: in the order of time.
        checkpoints: iterations at which one was saved, of those that count.
        validations, tests: iteration -> loss on the validation data, on the test data.
        by_epoch: the log tells epochs only, and the rows are numbered from 1.
        notes: what a reader of a picture must know, in words.
    """

    name: str
    table: Table
    attempts: Ints
    restarts: list[Restart] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    validations: dict[int, float] = field(default_factory=dict)
    tests: dict[int, float] = field(default_factory=dict)
    by_epoch: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def x_name(self) -> str:
        """What the rows are numbered by."""
        return "log entry" if self.by_epoch else "iteration"


def make_run(name: str, log: Log) -> Run:
    """Put the attempts of a log together; there may be none."""
    attempts, notes = _of_one_kind(log.attempts), list(log.notes)
    if not attempts:
        return Run(name, empty(), np.zeros(0, np.int64), notes=notes)
    kept = _lineage(attempts)
    tables = [attempts[number].table.rows(attempts[number].table.steps <= until) for number, until in kept]
    table = joined(tables)
    numbers = np.zeros(len(table), np.int64)
    saved: set[int] = set()
    validations: dict[int, float] = {}
    tests: dict[int, float] = {}
    for (number, until), part in zip(kept, tables, strict=True):
        attempt = attempts[number]
        numbers[np.searchsorted(table.steps, part.steps)] = number + 1
        saved = {step for step in saved if step < attempt.first}
        saved.update(step for step in attempt.saved if step <= until)
        validations = _upto(validations, attempt.first - 1) | _upto(attempt.validations, until)
        tests = _upto(tests, attempt.first - 1) | _upto(attempt.tests, until)
    run = Run(
        name,
        table,
        numbers,
        _restarts(attempts),
        sorted(saved),
        dict(sorted(validations.items())),
        dict(sorted(tests.items())),
        notes=notes,
    )
    return _numbered(run) if attempts[-1].by_epoch else run


def _upto(losses: dict[int, float], last: int) -> dict[int, float]:
    return {step: loss for step, loss in losses.items() if step <= last}


def _of_one_kind(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Leave out attempts that count in epochs among such that count in iterations, and the other way round."""
    by_epoch = bool(attempts) and attempts[-1].by_epoch
    return [attempt for attempt in attempts if attempt.by_epoch == by_epoch]


def _lineage(attempts: Sequence[Attempt]) -> list[tuple[int, int]]:
    """Return (number, last step that counts) of the attempts that the last one goes back to, the first one first."""
    current = len(attempts) - 1
    until = attempts[current].last
    kept = [(current, until)]
    while current > 0:
        start = attempts[current].known_start
        until = min(until, attempts[current].first - 1 if start is None else start)
        current = _forerunner(attempts[:current], attempts[current].begins(_interval(attempts)))
        kept.append((current, until))
    return kept[::-1]


def _interval(attempts: Sequence[Attempt]) -> int:
    """Return how often a run logs, as its latest attempt with two rows tells."""
    return next((attempt.interval for attempt in reversed(attempts) if attempt.interval is not None), 1)


def _forerunner(earlier: Sequence[Attempt], begins: int) -> int:
    """Return the latest attempt that had come to ``begins``, else the one that had come farthest."""
    interval = _interval(earlier)
    for number in range(len(earlier) - 1, -1, -1):
        if earlier[number].last + (earlier[number].interval or interval) > begins:
            return number
    return max(range(len(earlier)), key=lambda number: earlier[number].last)


def _restarts(attempts: Sequence[Attempt]) -> list[Restart]:
    restarts = []
    interval, reached = _interval(attempts), attempts[0].last
    for attempt in attempts[1:]:
        begins = attempt.begins(interval)
        restarts.append(Restart(begins, max(0, min(reached, attempt.last) - begins), attempt.source))
        reached = max(reached, attempt.last)
    return restarts


def _numbered(run: Run) -> Run:
    """Number the rows of a run whose log tells epochs only."""

    def number(step: int) -> int:
        return int(np.searchsorted(run.table.steps, step, side="right"))

    return replace(
        run,
        table=Table(np.arange(1, len(run.table) + 1), run.table.values, run.table.told),
        restarts=[
            replace(one, at=number(one.at), repeated=number(one.at + one.repeated) - number(one.at))
            for one in run.restarts
        ],
        checkpoints=[number(step) for step in run.checkpoints],
        validations={number(step): loss for step, loss in run.validations.items()},
        tests={number(step): loss for step, loss in run.tests.items()},
        by_epoch=True,
        notes=[*run.notes, "the log reports epochs, not iterations: its entries are numbered"],
    )


def between(run: Run, first: int, last: int | None) -> Run:
    """Return the run with what is at the steps from ``first`` to ``last`` alone (None: to the end)."""

    def inside(step: int) -> bool:
        return first <= step and (last is None or step <= last)

    chosen = np.array([inside(step) for step in run.table.steps.tolist()], np.bool_)
    return replace(
        run,
        table=run.table.rows(chosen),
        attempts=run.attempts[chosen],
        restarts=[one for one in run.restarts if inside(one.at)],
        checkpoints=[step for step in run.checkpoints if inside(step)],
        validations={step: loss for step, loss in run.validations.items() if inside(step)},
        tests={step: loss for step, loss in run.tests.items() if inside(step)},
    )


def went_on(log: Log) -> bool:
    """Return whether a log begins in the middle of a run."""
    return bool(log.attempts) and log.attempts[0].begins(log.attempts[0].first) > 0


def continues(later: Log, earlier: Log) -> bool:
    """Return whether the log of a job goes on where another had come to: it began at an iteration that was reached."""
    if not later.attempts or not earlier.attempts:
        return False
    first, interval = later.attempts[0], _interval(earlier.attempts)
    begins = first.begins(first.first)
    reached = max(attempt.last + (attempt.interval or interval) for attempt in earlier.attempts)
    return first.by_epoch == earlier.attempts[-1].by_epoch and 0 < begins < reached


def loads_from(later: Log, earlier: Log) -> bool:
    """Return whether a log says that it loaded a checkpoint from where another says that it saved them."""
    first = next(iter(later.attempts), None)
    if first is None or first.loaded is None or not continues(later, earlier):
        return False
    path = first.loaded.rstrip("/")
    saved = [one for attempt in earlier.attempts for one in attempt.saved.values() if one]
    return any(path == one.rstrip("/") or path.startswith(one.rstrip("/") + "/") for one in saved)


def one_log(logs: Iterable[Log]) -> Log:
    """Return the attempts of several logs as those of one run."""
    every = list(logs)
    return Log([attempt for log in every for attempt in log.attempts], [note for log in every for note in log.notes])


def told_names(runs: Iterable[Run]) -> list[str]:
    """Return the quantities that any run tells, in their order; samples a second only where tokens are not told."""
    every = list(runs)
    names = [name for name in NAMES if any(run.table.has(name) for run in every)]
    if all(run.table.has("tokens_per_s") for run in every if run.table.has("samples_per_s")):
        names = [name for name in names if name != "samples_per_s"]
    return names
