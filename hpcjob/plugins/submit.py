"""Submit the plan of a function, and leave a record of it where its job is looked for from any process."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hpcjob.errors import UnknownJobError
from hpcjob.plan import Plan
from hpcjob.regular import read_regular
from hpcjob.render import render
from hpcjob.schedulers.base import Submission, tag_of
from hpcjob.schedulers.registry import get_scheduler
from hpcjob.tracking import jobdir, submission
from hpcjob.tracking.records import Record
from neoxlite.common.files import write_whole

RECORD = "record.json"
_MAX_BYTES = 100_000


def submit_plan(plan: Plan, folder: Path, submit_dir: Path) -> Record:
    """Submit ``plan`` once, with a job directory below ``folder``; return its record, which that directory has too.

    Raises:
        UnclearSubmitError: the scheduler's answer was lost, and the job was not found.
        HpcjobError: it was not submitted; the message says why.
    """
    path = jobdir.new_path(plan, folder)
    prepared = submission.Prepared(
        render(plan, jobdir=str(path)),
        Submission(path / "script.sh", path, submit_dir, tag_of(path), plan),
        get_scheduler(plan.profile),
    )
    record = submission.submit(prepared)
    write_whole(path / RECORD, msgspec.json.encode(record), mode=0o600)
    return record


def read_record(path: Path) -> Record | None:
    """Return the record in a file; None if there is none, or it cannot be read as one."""
    try:
        return msgspec.json.decode(read_regular(path, _MAX_BYTES), type=Record)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


def find_record(submission_file: Path, job_id: str) -> Record:
    """Return the record of a job from the link to its script.

    Raises:
        UnknownJobError: there is none.
    """
    record = read_record(submission_file.resolve().parent / RECORD)
    if record is not None and record.id == job_id:
        return record
    if record is not None and record.array is not None:
        index = job_id.removeprefix(f"{record.id}_")
        if index.isdigit() and index != job_id:
            return record.element(int(index))
    raise UnknownJobError(
        f"{submission_file.parent}: no record of job {job_id}", hint="give the folder that its executor was given"
    )
