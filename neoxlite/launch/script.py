"""The script that starts a run: the job script of hpcjob for this machine, over the hosts of a hostfile.

The launch lines, and what oversees each rank and ends all when one dies, are hpcjob's own, which is imported here, and
in `neoxlite.launch.ending`, only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from neoxlite.errors import ConfigError, NeoxliteError
from neoxlite.launch.hosts import count_gpus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcjob.plan import Plan
    from neoxlite.launch.settings import Request, Settings

NAME = "launch"


def launch_script(request: Request, settings: Settings, environ: Mapping[str, str], *, jobdir: str | None) -> str:
    """Return the bash script that runs ``request``.

    Args:
        jobdir: folder of the run, which exists on all hosts; None: the script makes one.

    Raises:
        NeoxliteError: hpcjob is not installed, or a value cannot stand in a script.
    """
    try:
        from hpcjob.errors import HpcjobError
        from hpcjob.render import render
    except ModuleNotFoundError as error:
        raise NeoxliteError(
            f"launching needs {error.name}, which is not installed",
            hint="pip install hpcjob; or use torchrun: torchrun --nproc-per-node N -m neoxlite train ...",
        ) from None
    try:
        return render(_plan(request, settings, environ), jobdir=jobdir)
    except HpcjobError as error:
        raise ConfigError(error.message, hint=error.hint) from error


def _plan(request: Request, settings: Settings, environ: Mapping[str, str]) -> Plan:
    from hpcjob.job import JobFile, Python
    from hpcjob.plan import Plan, PlannedStep
    from hpcjob.profile import ClusterProfile, Scheduler, Ssh

    hosts = settings.hosts
    profile = ClusterProfile(
        name=NAME,
        title="neoxlite launch",
        scheduler=Scheduler(type="local", history=False),
        ssh=Ssh(access="free"),
        internet=True,
    )
    launcher: Any = settings.launcher
    step = PlannedStep(
        name=request.command,
        argv=request.argv(),
        launcher=launcher,
        env={},
        python=Python(executable=sys.executable),
        is_train=request.command == "train",
    )
    return Plan(
        name=NAME,
        job=JobFile(),
        profile=profile,
        nodes=max(1, len(hosts.names)),
        # On a host without GPUs the ranks run on its processors; where this one has some, so do the others.
        gpus_per_node=hosts.per_host if count_gpus(environ) else 0,
        procs_per_node=hosts.per_host,
        cpus_per_proc=None,
        memory_gib=None,
        walltime_s=0,
        stop_before_s=0,
        queue=None,
        account=None,
        modules=(),
        module_use=(),
        env=_allowed(settings.env),
        steps=(step,),
        notes=(),
        hosts=hosts.names,
        master_addr=settings.master_addr,
        master_port=settings.master_port,
    )


def _allowed(env: Mapping[str, str]) -> dict[str, str]:
    """Leave out what the script sets itself, and secrets, which nobody should read in it."""
    from hpcjob.rendering.variables import is_reserved, is_secret

    return {name: value for name, value in env.items() if not is_reserved(name) and not is_secret(name)}
