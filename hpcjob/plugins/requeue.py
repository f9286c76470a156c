"""How a job that ran out of time goes on, from inside the job.

Slurm takes the order to start it anew, Grid Engine an exit code. PBS lets only its operators do so, PJM nobody: there
a new job takes over, under the results and logs of the old one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
from submitit.core import utils

from hpcjob import exitcodes
from hpcjob.errors import HpcjobError
from hpcjob.loading.jobs import load_job
from hpcjob.loading.profiles import read_profile
from hpcjob.planning.make import make_plan
from hpcjob.plugins.job import next_path
from hpcjob.plugins.submit import submit_plan
from hpcjob.profile import ClusterProfile
from hpcjob.schedulers.base import JobRef, element_of
from hpcjob.schedulers.registry import get_scheduler
from neoxlite.common.files import write_whole


def start_anew(paths: utils.JobPaths) -> None:
    """Have this job run again from its pickle, which holds what was saved.

    Raises:
        SystemExit: the job ends with this code: the scheduler starts it anew, or another job takes over.
        UncompletedJobError: it cannot go on by itself.
    """
    jobdir = Path(os.environ["HPCJOB_JOBDIR"])
    own_id = os.environ["HPCJOB_JOB_ID"]
    array = os.environ.get("HPCJOB_ARRAY_ID")
    submission = jobdir.parent if array else jobdir
    try:
        profile, _ = read_profile(str(submission / "profile.yml"))
        scheduler = get_scheduler(profile)
        if scheduler.restart_code is not None:
            raise SystemExit(scheduler.restart_code)
        index = int(os.environ["HPCJOB_ARRAY_INDEX"]) if array else 0
        job = JobRef(own_id, jobdir) if array is None else element_of(JobRef(array, submission), index, index)
        if scheduler.restart(job):
            return
        _submit_next(paths, own_id, submission, profile)
    except HpcjobError as error:
        raise utils.UncompletedJobError(
            f"Job not requeued: it was saved, but cannot continue by itself: {error.message}. "
            "Submit the callable in its pickle again: executor.submit(job.submission().function)"
        ) from None
    raise SystemExit(exitcodes.SAVED_FOR_WALLTIME)


def _submit_next(paths: utils.JobPaths, own_id: str, submission: Path, profile: ClusterProfile) -> None:
    """Submit a job of one function, which takes over, and write down which it is."""
    job = load_job(submission / "job.yml")
    command = list(job.command or [])
    if "--job" not in command:
        command += ["--job", str(paths.job_id)]
    job = msgspec.structs.replace(job, command=command, array=None, array_limit=None, after=None)
    plan = make_plan(job, profile, name=job.name or "submitit", interpreter=sys.executable, account=job.account)
    folder = utils.JobPaths.get_first_id_independent_folder(os.environ["SUBMITIT_FOLDER"])
    record = submit_plan(plan, folder, Path(os.environ["HPCJOB_SUBMIT_DIR"]))
    write_whole(next_path(paths, own_id), msgspec.json.encode(record), mode=0o600)
