"""``submitit.AutoExecutor(folder, cluster="pjm")``: functions as jobs of Fujitsu's job operation software ("PJM")."""

from __future__ import annotations

import shutil
from typing import Any

from submitit.core.core import R

from hpcjob.plugins.environment import FunctionJobEnvironment
from hpcjob.plugins.executor import FunctionExecutor
from hpcjob.plugins.job import FunctionJob


class PjmJob(FunctionJob[R]):
    """A function submitted to PJM."""


class PjmJobEnvironment(FunctionJobEnvironment):
    """In a job of PJM."""


class PjmExecutor(FunctionExecutor):
    """Submits functions to PJM. ``pjm_queue`` is the resource group; GPUs come with its nodes."""

    job_class = PjmJob
    scheduler = "pjm"

    @classmethod
    def bare(cls, gpus: int) -> dict[str, Any]:
        """See `FunctionExecutor.bare`."""
        scheduler = {"type": "pjm", "account": "-g"}
        return {"name": "pjm", "title": "PJM", "scheduler": scheduler, "node": {"gpus": gpus}}

    @classmethod
    def affinity(cls) -> int:
        """Return 2 where PJM is."""
        return 2 if shutil.which("pjsub") else -1
