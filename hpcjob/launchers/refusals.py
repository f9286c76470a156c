"""Launchers that cannot work on a cluster, with the reason and those that do."""

from __future__ import annotations

from hpcjob.errors import InputError
from hpcjob.job import JobFile, LauncherName, Python
from hpcjob.profile import ClusterProfile

_OF_SEVERAL: tuple[LauncherName, ...] = ("mpirun", "torchrun", "srun", "pdsh")


def check_launcher(launcher: LauncherName, job: JobFile, profile: ClusterProfile) -> None:
    """Refuse a launcher that cannot work on this cluster.

    Raises:
        InputError: with the reason and the launchers that do work.
    """
    reason = _refusal(launcher, job, profile)
    if reason:
        works = [other for other in _OF_SEVERAL if not _refusal(other, job, profile)]
        raise InputError(f"launcher: {launcher} on {profile.name}: {reason}", hint=f"use {' or '.join(works)}")


def _refusal(launcher: LauncherName, job: JobFile, profile: ClusterProfile) -> str | None:
    scheduler = profile.scheduler.type
    if scheduler == "local" and job.nodes > 1:
        return "this machine is one node"
    if launcher == "srun" and scheduler != "slurm":
        return f"srun is part of Slurm, this cluster runs {scheduler}"
    if launcher == "pdsh" and scheduler == "local":
        return "pdsh reaches other nodes, this machine is one"
    if launcher == "pdsh" and profile.ssh.access == "none":
        return "its compute nodes allow no ssh between them"
    if launcher == "mpirun" and not profile.launcher.mpi:
        return "it has no Open MPI"
    if launcher == "torchrun" and scheduler not in ("slurm", "local") and not profile.launcher.mpi:
        return "one agent per node is started by mpirun here, and it has no Open MPI"
    return None


def check_pyxis(launcher: LauncherName, python: Python, job: JobFile, profile: ClusterProfile) -> None:
    """Refuse what pyxis cannot start: srun alone puts ranks into an image, the same for all launched steps.

    Raises:
        InputError: a step has an image of its own, a launcher is not srun's, or a folder cannot be bound.
    """
    if not profile.scheduler.uses_pyxis or launcher == "none" or (python.container is None and job.python is None):
        return
    own = job.python.container if job.python else None
    if python.container != own:
        raise InputError(
            "steps: with pyxis all launched steps run in the job's own python.container",
            hint="name the container in the job, not in a step; other images in jobs of their own (--chain)",
        )
    if own is None:
        return
    if launcher in ("mpirun", "pdsh"):
        raise InputError(
            f"launcher: {launcher} with python.container on {profile.name}: pyxis starts images by srun",
            hint="use srun or torchrun, or --set profile.scheduler.pyxis=false for apptainer",
        )
    for bind in own.binds:
        if "," in bind:
            raise InputError(
                f"python.container.binds: {bind!r}: pyxis does not accept a comma", hint="bind a folder above it"
            )
