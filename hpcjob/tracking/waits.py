"""What is said of jobs while somebody waits for them: what holds them up, once, and again when it changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcjob.schedulers.reasons import never_starts
from hpcjob.states import State

if TYPE_CHECKING:
    from hpcjob.tracking.records import Record
    from hpcjob.tracking.status import Status

PATIENCE_S = 2.0
"""So old is a job before anything is said of it: most wait for a moment."""
_ASKED_FOR = 3  # jobs of which is asked when they will start, a question each; of more it is not
_NAMED = 8  # jobs that are named where many wait for the same


class Waits:
    """Remember what was told.

    Args:
        tell: says something to the user, beside the output.

    Attributes:
        hopeless: jobs that will surely never start as they are.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.hopeless: set[Record] = set()
        self._tell = tell
        self._told: dict[Record, tuple[State, str]] = {}
        self._news: list[tuple[Record, Status]] = []

    def see(self, record: Record, status: Status) -> None:
        """Take in the status of a job that has not ended."""
        if record.age_s < PATIENCE_S:
            return
        never = never_starts(status.reason) if status.state is State.PENDING else None
        if never is not None and never.is_certain and record.attached:  # Slurm cancels ours (--kill-on-invalid-dep)
            self.hopeless.add(record)
        kind, known = _kind(status), self._told.get(record)
        if kind == known or (known is None and status.state in (State.RUNNING, State.COMPLETING)):
            return
        self._told[record] = kind
        self._news.append((record, status))

    def say(self, expected_start: Callable[[Record], str | None]) -> None:
        """Tell what is news since the last time, jobs that wait for the same in one line.

        Args:
            expected_start: asks when a job will start; not asked for many.
        """
        news, self._news = self._news, []
        groups: dict[tuple[State, str], list[tuple[Record, Status]]] = {}
        for record, status in news:
            groups.setdefault(_kind(status), []).append((record, status))
        for group in groups.values():
            (record, status), *others = group
            if others:
                self._tell(_words_of_many([one.id for one, _ in group], status))
                continue
            for one, its in group:
                asks = its.state is State.PENDING and its.held_up is None and len(news) <= _ASKED_FOR
                self._tell(_words(one, its, expected_start(one) if asks else None))


def _kind(status: Status) -> tuple[State, str]:
    """Return what is no news to hear twice: PBS counts free cores in its reason, a state that is not known its age."""
    is_told = status.state in (State.PENDING, State.SUSPENDED)
    return status.state, re.sub(r"\d+", "0", status.reason or "") if is_told else ""


def _words(record: Record, status: Status, start: str | None) -> str:
    from hpcjob.tracking.watch import ago

    if status.state is State.UNKNOWN:
        return f"{record.id} is UNKNOWN ({status.reason}); still waiting"
    if status.state in (State.RUNNING, State.COMPLETING) or status.held_up:
        return f"job {record.id} is {status.held_up or status.state}"
    expected = f", expected to start {start}" if start else ""
    return f"job {record.id} waits: {status.told}, submitted {ago(record.age_s)} ago{expected}"


def _words_of_many(ids: list[str], status: Status) -> str:
    named = ", ".join(ids[:_NAMED]) + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")
    if status.state in (State.RUNNING, State.COMPLETING):
        return f"{len(ids)} jobs are {status.state}: {named}"
    if status.state is State.UNKNOWN:
        why = (status.reason or "").partition(";")[0]  # the rest is of the one job
        return f"{len(ids)} jobs are UNKNOWN ({why}); still waiting: {named}"
    return f"{len(ids)} jobs wait: {status.held_up or status.told}: {named}"
