"""Who waited: what the watchdogs of PyTorch's process groups say, by rank."""

from __future__ import annotations

import msgspec

from hpcjob.logs.events import Finding

WAITING = ("watchdog-timeout", "watchdog-status")
"""The rules of such lines."""


class Wait(msgspec.Struct):
    """What the watchdog of a rank said when a collective timed out.

    Attributes:
        group: name of the process group; the first of those in which the rank waited.
        operation, sequence: the collective that did not end.
        enqueued, completed: numbers of the last collective that the rank began, that it finished.
        waited_ms: how long it waited.
    """

    group: str = ""
    operation: str | None = None
    sequence: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    waited_ms: float = 0


def note(event: Finding, waits: dict[int, Wait]) -> None:
    """Take in what a watchdog says, by the rank that it is of."""
    fields = event.fields
    rank = event.rank  # of the job; the message of a smaller group has the rank within it
    if rank is None:
        return
    wait = waits.setdefault(rank, Wait(group=fields.get("group", "")))
    wait.group = wait.group or fields.get("group", "")  # the line after the time-out tells it
    if wait.group != fields.get("group", wait.group):
        return  # numbers of another group are not to be compared with this one's
    wait.operation = wait.operation or fields.get("op")
    for name, field in (("sequence", "seq"), ("enqueued", "enqueued"), ("completed", "completed")):
        if fields.get(field):
            setattr(wait, name, int(fields[field]))
    if fields.get("ms"):
        wait.waited_ms = max(wait.waited_ms, float(fields["ms"]))
