"""Submissions under way: what one that was broken off may have left running is looked for, and recorded, afterwards.

An intent is a file in the state folder, written before the scheduler is asked and removed when the job stands in the
index, or was refused. One whose process is gone (killed, out of memory, a lost login node) is settled by the next
command that reads the index.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from hpcjob.errors import HpcjobError
from hpcjob.regular import read_regular
from hpcjob.schedulers.base import Mark, Submitted, UnclearSubmitError, tag_of
from hpcjob.schedulers.registry import scheduler_of
from hpcjob.schedulers.supervisor.processes import start_ticks
from hpcjob.tracking import jobdir
from hpcjob.tracking.index import Index, append, ensure_writable, intent_files, intent_folder
from hpcjob.tracking.records import Record
from neoxlite.common.files import write_whole

if TYPE_CHECKING:
    from hpcjob.profile import SchedulerName

_MAX_BYTES = 1_000_000
_ELSEWHERE_S = 1800.0  # no submission takes that long: of another host's process nothing else can be known
_GIVE_UP_S = 86400.0  # this host may be one of another cluster, whose queue never had the job
_ABSENT_S = 60.0  # a supervisor that just lost its submitter, or a controller that just took the request, needs a while


class UnrecordedError(HpcjobError):
    """The job was submitted, the index could not be written."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A submission under way.

    Attributes:
        record: the job's record, but for its id and server.
        host, pid, start: the process that submits.
    """

    record: Record
    host: str
    pid: int
    start: int

    @property
    def is_of_here(self) -> bool:
        """Whether it was this host that submitted."""
        return self.host == os.uname().nodename

    @property
    def broken_off(self) -> bool:
        """Whether the process that submitted is gone."""
        if not self.is_of_here:
            return self.record.scheduler != "local" and self.record.age_s > _ELSEWHERE_S
        return start_ticks(self.pid) != self.start


@contextlib.contextmanager
def under_way(record: Record) -> Iterator[None]:
    """Keep an intent while ``record`` is submitted; it stays where nobody knows what became of the job.

    Raises:
        HpcjobError: the state folder cannot be written; nothing was submitted.
    """
    ensure_writable(record.profile)
    path = intent_folder() / f"{tag_of(Path(record.directory))}.json"
    intent = Intent(record=record, host=os.uname().nodename, pid=os.getpid(), start=start_ticks(os.getpid()) or 0)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, msgspec.json.encode(intent), mode=0o600)
    except OSError as error:
        raise HpcjobError(
            f"{path.parent}: {error.strerror}; a job could not be tracked, nothing was submitted",
            hint="free some space there, or set XDG_STATE_HOME to a folder that has some",
        ) from None
    try:
        yield
    except (UnclearSubmitError, UnrecordedError):
        raise
    except BaseException:
        _remove(path)
        raise
    _remove(path)


def settle(index: Index) -> list[str]:
    """Record the jobs of submissions that were broken off, as far as they are found; return what there is to tell.

    Args:
        index: what is recorded; what a user has attached since is not recorded twice.
    """
    known = {record.directory for record in index.records}
    silent: dict[str, HpcjobError] = {}
    notes = []
    for path in intent_files():
        intent = _read(path)
        if intent is None or not intent.broken_off:
            continue
        if intent.record.directory in known:
            _remove(path)
        elif note := _settled(path, intent, silent):
            notes.append(note)
    return notes


def _settled(path: Path, intent: Intent, silent: dict[str, HpcjobError]) -> str | None:
    """Record the job of ``intent`` if it is found; say what became of it, None where it is too early to know.

    Args:
        silent: schedulers that did not answer, and what was told then: they are not asked again, for each may hang.
    """
    record = intent.record
    what = f"a submission of {record.name!r} was broken off"
    try:
        found = _found(record, silent)
    except HpcjobError as error:
        if record.age_s < _GIVE_UP_S:
            unknown = f"{what}, and whether its job exists is not known: {error.message} (folder {record.directory})"
            return unknown if intent.is_of_here else None
        found = None
    if found is None:
        if record.age_s < (_ABSENT_S if intent.is_of_here else _GIVE_UP_S):
            return None
        _remove(path)
        return f"{what}; no job of it is known (folder {record.directory})"
    taken = path.with_suffix(".taken")
    try:
        path.rename(taken)  # one of several commands at once can
    except OSError:
        return None
    try:
        append(identified(record, found))
    except OSError as error:
        taken.rename(path)
        return f"{what}, its job is {found.id}, and {error.filename} cannot be written: {error.strerror}"
    _remove(taken)
    return f"{what}; its job {found.id} is recorded now"


def _found(record: Record, silent: dict[str, HpcjobError]) -> Submitted | None:
    """Look for a job by the mark of its submission, as the answer of a scheduler that was lost is looked for.

    Raises:
        SchedulerError: the queue does not answer, and no script has begun.
    """
    folder = Path(record.directory)
    mark = Mark(folder / "script.sh", folder, tag_of(folder))
    started = jobdir.started_id(folder)
    try:
        if record.scheduler in silent:
            raise silent[record.scheduler]
        found = scheduler_of(cast("SchedulerName", record.scheduler)).lookup(mark)
    except HpcjobError as error:
        silent.setdefault(record.scheduler, error)
        if started is None:
            raise
        found = None
    return found or (Submitted(started) if started else None)


def identified(record: Record, submitted: Submitted) -> Record:
    """Return ``record`` under the id that the scheduler gave; of an array without its brackets."""
    job_id = submitted.id.replace("[]", "") if record.array else submitted.id
    return msgspec.structs.replace(record, id=job_id, server=submitted.server)


def _read(path: Path) -> Intent | None:
    try:
        intent = msgspec.json.decode(read_regular(path, _MAX_BYTES), type=Intent)
        sound = intent.record.directory.startswith("/") and intent.record.age_s is not None
    except (OSError, ValueError, RecursionError, TypeError):
        return None
    return intent if sound else None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
