"""GPUs and ranks of each node: what a job asks, and what its nodes have."""

from __future__ import annotations

from collections.abc import Iterator

from hpcjob.errors import InputError
from hpcjob.job import Env, JobFile
from hpcjob.profile import ClusterProfile
from neoxlite.common.counting import counted

ACCELERATOR = "DS_ACCELERATOR"  # DeepSpeed's own variable: cpu leaves the GPUs alone


def gpus_per_node(job: JobFile, profile: ClusterProfile) -> int:
    """Return the GPUs of each node: those asked for, else all that the node has; none for jobs that do not train."""
    if job.kind != "train":
        return 0
    return profile.node.gpus if job.gpus_per_node is None else job.gpus_per_node


def procs_per_node(job: JobFile, gpus: int) -> int:
    """Return the ranks of each node: those asked for, else one a GPU."""
    return (job.procs_per_node or gpus or 1) if job.kind == "train" else 1


def cpus_per_proc(job: JobFile, profile: ClusterProfile, procs: int, gpus: int) -> int | None:
    """Return the CPU cores that each rank asks for; None: nothing is asked.

    Slurm gives a task one core unless it is asked for more, and srun binds it to that one. So a rank asks there for its
    GPU's share of the node's cores, where the profile tells them and no raw directive asks for others.
    """
    of_node = profile.node.cores
    raw = [*profile.scheduler.extra, *job.extra]
    if job.cpus_per_gpu or profile.scheduler.type != "slurm" or not gpus or not of_node:
        return job.cpus_per_gpu
    if any(line.strip().startswith(("-c", "--cpus-per-")) for line in raw):
        return None
    return max(1, of_node * gpus // profile.node.gpus // procs)


def check_gpus(gpus: int, profile: ClusterProfile, where: str) -> None:
    """Refuse more GPUs than a node of ``where`` has.

    Raises:
        InputError: it has fewer.
    """
    has = profile.node.gpus
    if gpus > has:
        raise InputError(
            f"gpus_per_node: {gpus} requested, but a node of {where} has {has}",
            hint=f"ask for at most {has}, or for more nodes"
            if has
            else f"ask for none; if its nodes have some: --set profile.node.gpus={gpus}",
        )


def check_ranks(job: JobFile, procs: int, gpus: int, where: str) -> None:
    """Refuse a training run with more ranks than GPUs: the trainer gives each rank a GPU of its own.

    Raises:
        InputError: there are some GPUs, and fewer than ranks. A command may share one between its processes.
    """
    if 0 < gpus < procs and trains_on_gpus(job):
        raise InputError(
            f"procs_per_node: {counted(procs, 'rank')} on a node of {where} with {counted(gpus, 'GPU')}, "
            "and each rank of a training run takes one",
            hint=f"--set procs_per_node={gpus}; or train on the CPUs: --env {ACCELERATOR}=cpu",
        )


def trains_on_gpus(job: JobFile) -> bool:
    """Return whether a training run of ``job`` takes the GPUs that it finds."""
    own: list[Env] = [{}] if job.train else [step.env for step in job.steps or () if step.train]
    return any({**job.env, **env}.get(ACCELERATOR) != "cpu" for env in own)


def idle_gpus(job: JobFile, profile: ClusterProfile, procs: int, gpus: int) -> Iterator[str]:
    """Yield a note where a job holds more GPUs than it has ranks."""
    held = gpus if _gives_by_number(job, profile) else profile.node.gpus
    if job.kind == "train" and procs < held:
        yield f"{counted(procs, 'rank')} on each node of {counted(held, 'GPU')}: the others stay idle"


def _gives_by_number(job: JobFile, profile: ClusterProfile) -> bool:
    """Return whether a job holds the GPUs that it asks for, and not all of its nodes."""
    scheduler = profile.scheduler
    if scheduler.type == "slurm":
        return scheduler.gpu_request != "none" and not job.exclusive
    return scheduler.type == "pbs" and "{gpus}" in scheduler.select and not job.exclusive
