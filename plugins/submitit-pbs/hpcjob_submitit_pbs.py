"""``submitit.AutoExecutor(folder, cluster="pbs")``: functions as jobs of PBS Professional and OpenPBS."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from submitit.core.core import R

from hpcjob.plugins.environment import FunctionJobEnvironment
from hpcjob.plugins.executor import FunctionExecutor
from hpcjob.plugins.job import FunctionJob


class PbsJob(FunctionJob[R]):
    """A function submitted to PBS."""


class PbsJobEnvironment(FunctionJobEnvironment):
    """In a job of PBS."""


class PbsExecutor(FunctionExecutor):
    """Submits functions to PBS. GPUs are asked for as ``ngpus``; a profile may say otherwise in its ``select``."""

    job_class = PbsJob
    scheduler = "pbs"

    @classmethod
    def bare(cls, gpus: int) -> dict[str, Any]:
        """See `FunctionExecutor.bare`."""
        select = ":ncpus={cpus}:mpiprocs={procs}" + (":ngpus={gpus}" if gpus else "")
        scheduler = {"type": "pbs", "account": "-P", "select": select}
        return {"name": "pbs", "title": "PBS", "scheduler": scheduler, "node": {"gpus": gpus}}

    @classmethod
    def affinity(cls) -> int:
        """Return 2 where PBS is: Grid Engine has a qsub too."""
        is_other = "SGE_ROOT" in os.environ or shutil.which("qconf")
        is_here = shutil.which("qsub") and (shutil.which("pbsnodes") or Path("/etc/pbs.conf").exists())
        return 2 if is_here and not is_other else -1
