"""``submitit.AutoExecutor(folder, cluster="gridengine")``: functions as jobs of Grid Engine."""

from __future__ import annotations

import os
import shutil
from typing import Any

from submitit.core.core import R

from hpcjob.plugins.environment import FunctionJobEnvironment
from hpcjob.plugins.executor import FunctionExecutor
from hpcjob.plugins.job import FunctionJob


class GridEngineJob(FunctionJob[R]):
    """A function submitted to Grid Engine."""


class GridEngineJobEnvironment(FunctionJobEnvironment):
    """In a job of Grid Engine."""


class GridEngineExecutor(FunctionExecutor):
    """Submits functions to Grid Engine.

    ``gridengine_queue`` is a site's type of node, such as ``rt_F``. Without it, or a profile, a job has one slot;
    ``gridengine_extra=["-pe smp 8"]`` asks for more.
    """

    job_class = GridEngineJob
    scheduler = "gridengine"

    @classmethod
    def bare(cls, gpus: int) -> dict[str, Any]:
        """See `FunctionExecutor.bare`."""
        scheduler = {"type": "gridengine", "account": "-g-cli"}
        return {"name": "gridengine", "title": "Grid Engine", "scheduler": scheduler, "node": {"gpus": gpus}}

    @classmethod
    def affinity(cls) -> int:
        """Return 2 where Grid Engine is: PBS has a qsub too."""
        return 2 if shutil.which("qsub") and ("SGE_ROOT" in os.environ or shutil.which("qconf")) else -1
