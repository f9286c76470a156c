"""Submit the plan of a function, and leave a record of it where its job is looked for from any process."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hpcjob.plan import Plan
from hpcjob.plugins.records import RECORD
from hpcjob.render import render
from hpcjob.schedulers.base import Submission, tag_of
from hpcjob.schedulers.registry import get_scheduler
from hpcjob.tracking import jobdir, submission
from hpcjob.tracking.records import Record
from neoxlite.common.files import write_whole


def submit_plan(plan: Plan, folder: Path, submit_dir: Path) -> Record:
    """Submit ``plan`` once, with a job directory below ``folder``; return its record, which that directory has too.

    Raises:
        UnclearSubmitError: the scheduler's answer was lost, and the job was not found.
        HpcjobError: it was not submitted; the message says why.
    """
    path = jobdir.new_path(plan, folder)
    prepared = submission.Prepared(
        render(plan, jobdir=str(path)),
        Submission(path / "script.sh", path, tag_of(path), submit_dir, plan),
        get_scheduler(plan.profile),
    )
    record = submission.submit(prepared)
    write_whole(path / RECORD, msgspec.json.encode(record), mode=0o600)
    return record
