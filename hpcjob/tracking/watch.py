"""The states of recorded jobs, asked for together: one question a cluster, none about jobs known to have ended."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, cast

from hpcjob import exitcodes
from hpcjob.errors import HpcjobError
from hpcjob.schedulers.reasons import never_starts
from hpcjob.schedulers.registry import scheduler_of
from hpcjob.states import State
from hpcjob.tracking.index import Index, append, read_index
from hpcjob.tracking.records import Change, Record
from hpcjob.tracking.status import Status, meant

if TYPE_CHECKING:
    from hpcjob.profile import SchedulerName
    from hpcjob.tracking.submitit_jobs import TrackedJob
    from hpcjob.tracking.waits import Waits

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0


def refresh(records: Iterable[Record], index: Index) -> dict[Record, Status]:
    """Return the status of ``records``; what has changed since it was last seen is noted in the index.

    Args:
        index: what was seen before; a job that ended then is not asked about again.
    """
    statuses: dict[Record, Status] = {}
    live = []
    for record in records:
        status = seen_to_end(record, index)
        if status is None:
            live.append(record)
        else:
            statuses[record] = status
    for group in _groups(live):
        mode = "standard"
        for job, record in zip(track(group), group, strict=True):
            statuses[record] = _noted(record, job.status(mode), index)
            mode = "cache"  # the first asked for all, however long it takes to go through them
    return statuses


def track(records: Sequence[Record]) -> list[TrackedJob]:
    """Return the submitit job of each record, all of one cluster and of different ids, behind one watcher."""
    from hpcjob.tracking.submitit_jobs import TrackedJob, Watcher

    first = records[0]
    watcher = Watcher(scheduler_of(cast("SchedulerName", first.scheduler)), history=first.history)
    return [TrackedJob.of(record.ref, watcher) for record in records]


def job_ended(record: Record, waits: Waits | None = None) -> bool:
    """Return whether the job has ended. May be asked twice a second: the scheduler is asked ever more seldom.

    Args:
        waits: tells what the job waits for.

    Raises:
        HpcjobError: the job will never start, which ``waits`` has told.
    """
    job, index = _watched(record)
    job.done()  # asks, if it is time to
    status = _noted(record, job.status("cache"), index)
    if waits is not None and not status.state.ended:
        waits.see(record, status)
        waits.say(lambda one: job.watcher.scheduler.expected_start(one.ref))
        if waits.hopeless:
            raise no_use(waits.hopeless)
    return status.state.ended


def no_use(records: Iterable[Record]) -> HpcjobError:
    """Return the error that ends the wait for jobs that will never start."""
    ids = " ".join(sorted(record.id for record in records))
    return HpcjobError(
        f"no use to wait for what never starts as it is: {ids}",
        hint=f"hpcjob cancel {ids}",
        exit_code=exitcodes.NOT_ENDED,
    )


@functools.lru_cache(maxsize=128)
def _watched(record: Record) -> tuple[TrackedJob, Index]:
    return track([record])[0], read_index()


def wait_for(
    records: Sequence[Record],
    index: Index,
    *,
    timeout_s: float | None = None,
    waits: Waits | None = None,
) -> Iterator[tuple[Record, Status]]:
    """Yield each record as it ends, with its status; stop when all have, or after ``timeout_s``.

    Args:
        waits: tells what jobs wait for; those that it calls hopeless are not waited for.
    """
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    statuses = {record: seen_to_end(record, index) for record in records}
    yield from ((record, status) for record, status in statuses.items() if status is not None)
    jobs = {
        record: job
        for group in _groups(record for record, status in statuses.items() if status is None)
        for job, record in zip(track(group), group, strict=True)
    }
    pause_s = _SHORTEST_PAUSE_S
    while jobs:
        for record, job in list(jobs.items()):
            job.done()  # asks, if it is time to
            status = _noted(record, job.status("cache"), index)
            if status.state.ended:
                del jobs[record]
                yield record, status
            elif waits is not None:
                waits.see(record, status)
                if record in waits.hopeless:
                    del jobs[record]
        if waits is not None:
            waits.say(lambda one: track([one])[0].watcher.scheduler.expected_start(one.ref))
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return
        if jobs:
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.2, _LONGEST_PAUSE_S)


def cancel(record: Record, index: Index) -> str:
    """End a job and return what happened, in a few words.

    Raises:
        SchedulerError: the scheduler refused or did not answer.
    """
    status = seen_to_end(record, index)
    if status is not None:
        return f"had ended before ({status.state})"
    job = track([record])[0]
    told = job.watcher.scheduler.cancel([job.ref])[record.id]
    index.cancelled.add(record.key)
    with contextlib.suppress(OSError):
        append(record.cancel())
    now = _noted(record, job.status("force"), index)
    return told if now.state.ended else f"{told}; {now.state} now"


def hold(record: Record, index: Index, *, release: bool = False) -> str:
    """Hold a job that waits, or release it; return its state then, in a few words.

    Raises:
        SchedulerError: the scheduler cannot, refused or did not answer.
    """
    status = seen_to_end(record, index)
    if status is not None:
        return f"has ended ({status.state})"
    job = track([record])[0]
    scheduler = job.watcher.scheduler
    before = _noted(record, job.status("force"), index)
    if before.state is State.RUNNING and record.array is None and not release:
        return "RUNNING; it continues, only a job that waits can be held"
    (scheduler.release if release else scheduler.hold)([job.ref])
    now = _noted(record, job.status("force"), index)
    return str(now.state) + (f" ({now.reason})" if now.reason else "")


def seen_to_end(record: Record, index: Index) -> Status | None:
    """Return the status in which a job was seen to have ended; None if it was not."""
    seen = index.last_change(record)
    if seen is None or not seen.is_final:
        return None
    return _from_index(seen)


def _from_index(seen: Change) -> Status:
    return Status(meant(seen.state, seen.exit_code), seen.exit_code, seen.reason, "index")


def _groups(records: Iterable[Record]) -> list[list[Record]]:
    """Split by cluster; of two records with one id (ids come round again) each has a group of its own."""
    groups: dict[tuple[str, str, bool, int], dict[str, Record]] = {}
    for record in records:
        turn = 0
        while record.id in groups.setdefault((record.scheduler, record.server, record.history, turn), {}):
            turn += 1
        groups[record.scheduler, record.server, record.history, turn][record.id] = record
    return [list(group.values()) for group in groups.values() if group]


def _noted(record: Record, status: Status, index: Index) -> Status:
    """Return the status to show, and note it in the index if it is news."""
    seen = index.last_change(record)
    status = or_cancelled(record, status, index)
    if status.state is State.UNKNOWN:
        if seen is not None and seen.state.ended:
            return _from_index(seen)
        since = f"last seen {seen.state} {ago(_age_s(seen.time))} ago" if seen else f"submitted {ago(record.age_s)} ago"
        return Status(State.UNKNOWN, None, f"{status.reason}; {since}", status.source)
    if status.reason == "held" and record.after:  # Grid Engine's word for both; a release lets none start
        status = replace(status, reason=f"waits for {', '.join(record.after)}, or held")
    is_news = seen is None or (seen.state, seen.exit_code) != (status.state, status.exit_code)
    if is_news or (seen is not None and seen.reason != status.reason and never_starts(status.reason)):
        change = record.change(status.state, status.exit_code, status.reason)
        index.changes.setdefault(record.key, []).append(change)
        with contextlib.suppress(OSError):  # a note for later; the answer stands without it
            append(change)
    return status


def or_cancelled(record: Record, status: Status, index: Index) -> Status:
    """Return the status, as CANCELLED if the job's end was asked for and it has failed, or is gone.

    Grid Engine tells a deleted job from a killed one by nothing, and nothing at all of one deleted while it waited.
    """
    if status.state is not State.FAILED and status.source != "absent":
        return status
    if not index.was_cancelled(record):
        return status
    reason = status.reason if status.state is State.FAILED else "cancelled; it is no longer in the queue"
    return Status(State.CANCELLED, status.exit_code, reason, status.source)


def _age_s(time: str) -> float:
    return (datetime.now(timezone.utc) - datetime.fromisoformat(time)).total_seconds()


def ago(seconds: float) -> str:
    """Return a duration in the two largest units: ``3h 5m``."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{value}{unit}" for value, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")) if value]
    return " ".join(parts[:2]) or "0s"
