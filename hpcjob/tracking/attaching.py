"""Begin to track a job that somebody submitted by hand."""

from __future__ import annotations

import re
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from hpcjob.errors import InputError, UnknownJobError
from hpcjob.naming import check_name
from hpcjob.schedulers.base import JobRef
from hpcjob.schedulers.registry import get_scheduler
from hpcjob.tracking.exit_record import read_exit_record
from hpcjob.tracking.index import append, ensure_writable, read_index
from hpcjob.tracking.jobdir import started_id
from hpcjob.tracking.records import Record, made_by_script, now
from neoxlite.common.paths import exists, what_else

if TYPE_CHECKING:
    from hpcjob.profile import ClusterProfile

_ID = re.compile(r"\d[\w.\[\]-]*", re.ASCII)


def attach(job_id: str, profile: ClusterProfile, *, log: Path | None = None, name: str | None = None) -> Record:
    """Record the job and return it.

    Args:
        log: its log file, or its job directory; default: what is found below ``outputs`` of the current folder.
        name: default: the scheduler's name of it, else ``job-ID``.

    Raises:
        InputError: that is no id, ``log`` is no file and no folder of a job, the name is none, or the job is recorded.
        UnknownJobError: the scheduler does not know the job and no log tells of it.
        SchedulerError: the scheduler does not answer.
    """
    if not _ID.fullmatch(job_id):
        raise InputError(f"{job_id!r} is not a job id", hint="give the id that the scheduler printed, such as 12345")
    if log is not None:
        _check_log(log, job_id)
    if name is not None:
        check_name(name)
    ensure_writable(profile.name)
    folder = _folder(job_id, log)
    scheduler = get_scheduler(profile)
    report = scheduler.adopt(JobRef(job_id, folder))
    if report is not None and report.id is not None:
        job_id = report.id  # the files of its script bear it
        folder = _folder(job_id, log)
    if report is None and log is None and read_exit_record(folder, job_id) is None:
        raise UnknownJobError(
            f"{profile.name} does not know job {job_id}", hint="check the id; a job that ended long ago needs its LOG"
        )
    _check_new(profile.name, scheduler.server(), job_id, folder)
    record = Record(
        profile=profile.name,
        scheduler=profile.scheduler.type,
        server=scheduler.server(),
        id=job_id,
        submitted=now(),
        name=name or (report.name if report and report.name else f"job-{job_id}"),
        directory=str(folder),
        log=str(log.absolute()) if log is not None and not log.is_dir() else None,
        attached=True,
        history=profile.scheduler.history,
    )
    append(record)
    return record


def _check_log(log: Path, job_id: str) -> None:
    """Raise InputError where ``log`` is neither a file nor a folder in which a script of ours, or the job, left one."""
    if not exists(log):
        raise InputError(f"{log}: no such log file or job directory", hint="omit it if there is none yet")
    if other := what_else(log):
        raise InputError(f"{log}: {other}, not a log file", hint="name the file that the job writes, or its directory")
    is_ours = (log / "script.sh").is_file() or started_id(log) is not None
    if log.is_dir() and not is_ours and not any(log.glob(f"{escape(job_id)}_*")):
        raise InputError(
            f"{log}: a folder with neither script.sh nor a log of job {job_id}", hint="name the job's log file in it"
        )


def _check_new(profile: str, server: str, job_id: str, folder: Path) -> None:
    """Raise InputError where the job is in the list: a second record would hide the first, and its name."""
    for record in read_index().records:
        if (record.profile, record.server, record.id, record.directory) == (profile, server, job_id, str(folder)):
            raise InputError(
                f"job {job_id} is recorded already, as {record.name!r}",
                hint=f"hpcjob status {job_id}; to record it in another way: hpcjob forget {job_id} first",
            )


def _folder(job_id: str, log: Path | None) -> Path:
    """Return the job directory: the one named, that of the log, the one the script made, else the current folder."""
    if log is not None:
        return log.absolute() if log.is_dir() else log.absolute().parent
    here = Path.cwd()
    return made_by_script(here, job_id) or here
