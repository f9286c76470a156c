"""The records that the folder of an executor leads to, so that any process finds a job again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hpcjob.errors import UnknownJobError
from hpcjob.regular import read_regular
from hpcjob.tracking.records import Record

RECORD = "record.json"  # in a job directory
_MAX_BYTES = 100_000


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
