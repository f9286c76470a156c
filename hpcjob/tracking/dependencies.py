"""The jobs that a new one comes after: found among the recorded ones, and left out or refused where they have ended."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from hpcjob.after import Condition, Dependency, wanted
from hpcjob.errors import InputError, UnknownJobError
from hpcjob.states import State
from hpcjob.tracking.index import Index, read_settled
from hpcjob.tracking.lookup import elements, find_job
from hpcjob.tracking.records import Record

if TYPE_CHECKING:
    from hpcjob.job import JobFile
    from hpcjob.profile import ClusterProfile
    from hpcjob.tracking.status import Status

_ID = re.compile(r"\d+(?:\[\d*\])?(?:[_.][\w.-]+)?", re.ASCII)


def found(job: JobFile, profile: ClusterProfile, *, ask: bool) -> tuple[list[Dependency], list[str]]:
    """Return what ``job`` has to wait for, and notes.

    A job that has ended is no dependency any more: schedulers forget it, and take what comes after it for ready, for
    refused or for deleted.

    Args:
        ask: whether to ask the scheduler for the states; else what was last seen counts.

    Raises:
        InputError: no such job, it is on another cluster, or its end was not what is asked.
    """
    names = list(wanted(job))
    if not names:
        return [], []
    index, notes = read_settled()
    dependencies: list[Dependency] = []
    for condition, name in names:
        try:
            record = find_job(name, index)
        except UnknownJobError as error:
            if not _ID.fullmatch(name):
                raise InputError(f"after: {error.message}", hint=error.hint) from None
            if profile.scheduler.type == "local":  # pids come again: only the records know which job was meant
                raise InputError(
                    f"after: no job {name} of this machine is recorded",
                    hint=f"hpcjob list --all shows them; hpcjob attach {name} -p local for a process started by hand",
                ) from None
            notes.append(f"after: job {name} is not recorded here; it is taken for an id of {profile.name}")
            dependencies.append(Dependency(condition=condition, id=name, own_id=name))
            continue
        if record.profile != profile.name:
            raise InputError(
                f"after: job {record.id} is one of {record.profile}, this one is for {profile.name}",
                hint="one scheduler does not know the jobs of another: hpcjob wait, then submit",
            )
        _check_machine(record, profile)
        status = _status(record, index, ask)
        if status is None or not status.state.ended:
            dependencies.append(_dependency(record, condition, profile))
        elif _is_so(condition, status):
            notes.append(f"after: job {record.id} has ended ({status.state}); there is nothing to wait for")
        else:
            raise InputError(
                f"after: job {record.id} has ended ({status.state}), after{condition} does not come true any more",
                hint="omit `after`, or submit that job again first",
            )
    return dependencies, notes


def _check_machine(record: Record, profile: ClusterProfile) -> None:
    """Raise InputError for a job of another machine: its pids mean something there alone."""
    if profile.scheduler.type == "local" and record.server != (here := socket.gethostname()):
        raise InputError(
            f"after: job {record.id} is one of {record.server}, this is {here}",
            hint=f"submit there, or hpcjob wait {record.id} there first",
        )


def _status(record: Record, index: Index, ask: bool) -> Status | None:
    from hpcjob.tracking.watch import refresh, seen_to_end

    return refresh([record], index)[record] if ask else seen_to_end(record, index)


def _is_so(condition: Condition, status: Status) -> bool:
    well = status.state is State.COMPLETED and not status.exit_code
    return {"ok": well, "notok": not well, "any": True}[condition]


def _dependency(record: Record, condition: Condition, profile: ClusterProfile) -> Dependency:
    from hpcjob.schedulers.registry import get_scheduler

    own_id = get_scheduler(profile).own_id(record.ref)
    if record.element_of is not None:
        if profile.scheduler.type in ("pbs", "local"):
            raise InputError(
                f"after: {record.id} is an element of an array, {profile.scheduler.type} waits for whole arrays",
                hint=f"name the array: {record.element_of}",
            )
        own_id = record.element_of if profile.scheduler.type == "gridengine" else own_id
    return Dependency(
        condition=condition,
        id=record.id,
        own_id=own_id,
        name=record.name,
        jobdir=str(record.jobdir),
        records=tuple(f"{one.directory}/{one.id}_exit.json" for one in elements(record)),
        is_array=record.array is not None,
    )


def left_behind(record: Record, index: Index) -> str | None:
    """Return what to know of jobs that wait for one that is cancelled, where the scheduler forgets them."""
    if record.scheduler != "pbs":
        return None
    waiting = [
        other
        for other in index.records
        if not index.ended(other) and any(one.partition(":")[2] == record.id for one in other.after)
    ]
    if not waiting:
        return None
    ids = ", ".join(other.id for other in waiting)
    return f"PBS holds what waits for a job that was deleted before it ran, for ever: cancel it too ({ids})"
