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

    def see(self, record: Record, status: Status, expected_start: Callable[[], str | None]) -> None:
        """Tell what is news of a job that has not ended.

        Args:
            expected_start: asks when the job will start, for `Scheduler.expected_start`; not asked without need.
        """
        if record.age_s < PATIENCE_S:
            return
        never = never_starts(status.reason) if status.state is State.PENDING else None
        if never is not None and never.is_certain:
            self.hopeless.add(record)
        news = _kind(status)
        known = self._told.get(record)
        if news == known or (known is None and status.state in (State.RUNNING, State.COMPLETING)):
            return
        self._told[record] = news
        self._tell(_words(record, status, expected_start))


def _kind(status: Status) -> tuple[State, str]:
    """Return what is no news to hear twice: PBS counts free cores in its reason, a state that is not known its age."""
    is_told = status.state in (State.PENDING, State.SUSPENDED)
    return status.state, re.sub(r"\d+", "0", status.reason or "") if is_told else ""


def _words(record: Record, status: Status, expected_start: Callable[[], str | None]) -> str:
    from hpcjob.tracking.watch import ago

    if status.state is State.UNKNOWN:
        return f"{record.id} is UNKNOWN ({status.reason}); still waiting"
    if status.state in (State.RUNNING, State.COMPLETING) or status.held_up:
        return f"job {record.id} is {status.held_up or status.state}"
    start = expected_start() if status.state is State.PENDING else None
    expected = f", expected to start {start}" if start else ""
    return f"job {record.id} waits: {status.told}, submitted {ago(record.age_s)} ago{expected}"
