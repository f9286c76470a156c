"""submitit's JobEnvironment: what a function in a job knows of it, and what happens when its walltime is near."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import ClassVar

from submitit.core import job_environment, utils

_PAUSE_S = 1.0


class FunctionJobEnvironment(job_environment.JobEnvironment):
    """The environment of a function in a job. `hpcjob.plugins.task` sets its variables from those of the job script."""

    _env: ClassVar[dict[str, str]] = {
        "job_id": "SUBMITIT_JOB_ID",
        "array_job_id": "SUBMITIT_ARRAY_JOB_ID",
        "array_task_id": "SUBMITIT_ARRAY_TASK_ID",
        "num_tasks": "SUBMITIT_NUM_TASKS",
        "num_nodes": "SUBMITIT_NUM_NODES",
        "node": "SUBMITIT_NODE",
        "global_rank": "SUBMITIT_GLOBAL_RANK",
        "local_rank": "SUBMITIT_LOCAL_RANK",
    }

    @property
    def hostnames(self) -> list[str]:
        """The nodes, the first one first."""
        return hostnames() or [self.hostname]

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        """Handle signals as submitit does, and send its own when the job's script asks to stop for the walltime."""
        super()._handle_signals(paths, submission)
        threading.Thread(target=_warn, args=(self._usr_sig(),), daemon=True).start()

    def _requeue(self, countdown: int) -> None:
        from hpcjob.plugins.requeue import start_anew

        start_anew(self.paths)


class HpcjobJobEnvironment(FunctionJobEnvironment):
    """In a job submitted with ``cluster="hpcjob"``."""


def hostnames() -> list[str]:
    """Return the nodes of the job, as its script wrote them down."""
    try:
        lines = (Path(os.environ["HPCJOB_JOBDIR"]) / "hostfile").read_text(encoding="utf-8").splitlines()
    except (OSError, KeyError):
        return []
    return [line.split()[0] for line in lines if line.strip()]


def _warn(number: signal.Signals) -> None:
    """Send ``number`` to this process when the script, warned by the scheduler or by its timer, asks to stop."""
    stop = Path(os.environ["HPCJOB_JOBDIR"]) / "stop"
    while not _asked(stop):
        time.sleep(_PAUSE_S)
    os.kill(os.getpid(), number)


def _asked(stop: Path) -> bool:
    try:
        return stop.read_text(encoding="utf-8").strip() == "walltime"
    except OSError:
        return False
