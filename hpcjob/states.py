"""The one vocabulary of job states. Each scheduler's words are mapped to it in that scheduler's own module."""

from __future__ import annotations

import enum


class State(str, enum.Enum):
    """State of a job as hpcjob tells it.

    An unknown word of a scheduler is never taken for an end: it becomes ``UNKNOWN``, which counts as alive.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PREEMPTED = "PREEMPTED"
    SUSPENDED = "SUSPENDED"
    UNKNOWN = "UNKNOWN"

    @property
    def ended(self) -> bool:
        """Whether a job in this state will not run again by itself."""
        return self in _ENDED

    def __str__(self) -> str:
        return self.value


_ENDED = frozenset(
    {
        State.COMPLETED,
        State.FAILED,
        State.CANCELLED,
        State.TIMEOUT,
        State.NODE_FAIL,
        State.OUT_OF_MEMORY,
        State.PREEMPTED,
    }
)
