"""One status for an array, from those of its elements."""

from __future__ import annotations

from collections.abc import Mapping

from hpcjob.arrays import format_spec
from hpcjob.states import State
from hpcjob.tracking.status import SOURCES, Source, Status

_LIVE = (State.RUNNING, State.COMPLETING, State.SUSPENDED, State.PENDING)
_WORST_FIRST = (
    State.FAILED,
    State.OUT_OF_MEMORY,
    State.TIMEOUT,
    State.NODE_FAIL,
    State.PREEMPTED,
    State.CANCELLED,
    State.COMPLETED,
)
_NAMED = 8  # indices that are written out


def combined(statuses: Mapping[int, Status]) -> Status:
    """Return the status of an array: alive while one element is; then the worst end, and the largest code of those.

    Args:
        statuses: index -> status of each element.
    """
    indices: dict[State, list[int]] = {}
    for index, status in statuses.items():
        indices.setdefault(status.state, []).append(index)
    told = _words(indices, statuses)
    for state in _LIVE:
        if state in indices:
            return Status(state, None, told, "queue")
    if State.UNKNOWN in indices:
        unknown = [statuses[index] for index in indices[State.UNKNOWN]]
        absent = all(status.source == "absent" for status in unknown)
        return Status(State.UNKNOWN, None, f"{told}; {unknown[0].reason}", "absent" if absent else "none")
    worst = next(state for state in _WORST_FIRST if state in indices)
    ends = [status for status in statuses.values() if status.state is worst]
    # One that its scheduler ended has saved nothing, whatever the others did.
    cut = [status for status in ends if worst is State.TIMEOUT and not status.is_clean_stop]
    code = max((status.exit_code for status in cut or ends if status.exit_code is not None), default=None)
    return Status(worst, code if code or worst is State.COMPLETED else None, told, _source(statuses))


def _source(statuses: Mapping[int, Status]) -> Source:
    sources = {status.source for status in statuses.values()}
    return next((source for source in SOURCES if source in sources), "none")


def _words(indices: Mapping[State, list[int]], statuses: Mapping[int, Status]) -> str:
    """Say how many are where, naming those that went wrong; a reason that all share is kept."""
    if len(indices) == 1:
        reasons = {status.reason for status in statuses.values()}
        shared = next(iter(reasons)) if len(reasons) == 1 else None
        return f"all {len(statuses)} elements" + (f": {shared}" if shared else "")
    parts = []
    for state in (*_LIVE, State.UNKNOWN, *_WORST_FIRST):
        if state in indices:
            found = indices[state]
            bad = state in _WORST_FIRST[:-1]
            named = format_spec(sorted(found)[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
            parts.append(f"{len(found)} {state}" + (f" ({named})" if bad else ""))
    return ", ".join(parts)
