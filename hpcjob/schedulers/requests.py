"""What a plan asks of its scheduler: the values that the directives of a script's template are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpcjob.plan import Plan
from hpcjob.profile import SchedulerName
from hpcjob.schedulers.directives import require
from hpcjob.units import format_clock

SUBMIT_COMMANDS: Mapping[SchedulerName, str] = {
    "slurm": "sbatch",
    "pbs": "qsub",
    "gridengine": "qsub",
    "pjm": "pjsub",
    "local": "bash",
}
_SIGNAL_LIMIT_S = 65_535  # of sbatch --signal


def request(plan: Plan) -> dict[str, Any]:
    """Return name -> value for the ``directives`` block of a template.

    Raises:
        InputError: the job asks for what its scheduler cannot be asked for; the message names the key.
    """
    job, scheduler = plan.job, plan.profile.scheduler
    for key, value in (("exclude", job.exclude), ("reservation", job.reservation), ("memory", plan.memory_gib)):
        if value:
            require(scheduler.type, key)
    raw = [*scheduler.extra, *job.extra]
    if "pdsh" in plan.launchers and plan.profile.ssh.access == "switch" and plan.profile.ssh.directive:
        raw.append(plan.profile.ssh.directive)
    variables, extra = _joined_variables(raw) if scheduler.type == "pbs" else ("", raw)
    warned = scheduler.type == "slurm" and scheduler.signal and 0 < plan.stop_before_s <= _SIGNAL_LIMIT_S
    return {
        "account": plan.account if scheduler.account != "none" else None,
        "account_style": scheduler.account,
        "queue": plan.queue,
        "reservation": job.reservation,
        "exclude": ",".join(job.exclude),
        "nodes": plan.nodes,
        "gpus": plan.gpus_per_node,
        "gpu_request": scheduler.gpu_request,
        "procs_per_node": plan.procs_per_node,
        "cpus_per_proc": plan.cpus_per_proc,
        "memory_mib": _mebibytes(plan.memory_gib) if plan.memory_gib else None,
        "walltime": format_clock(plan.walltime_s),
        "signal_s": plan.stop_before_s if warned else 0,
        "timer_s": plan.walltime_s - plan.stop_before_s if plan.stop_before_s and not warned else 0,
        "select": _select(plan),
        "rerunnable": scheduler.rerunnable,
        "variables": variables,
        "extra": extra,
        "mpi_procs": _mpi_procs(plan),
    }


def _joined_variables(raw: Sequence[str]) -> tuple[str, list[str]]:
    """Split off the ``-v`` of PBS's raw directives as one list: of several ``-v``, PBS takes the last alone."""
    given = [line.strip()[2:].strip() for line in raw if line.strip().startswith("-v")]
    return ",".join(given), [line for line in raw if not line.strip().startswith("-v")]


def _select(plan: Plan) -> str:
    """Return PBS's ``select``: the profile's own, with its names filled in, and the memory."""
    select = plan.profile.scheduler.select
    cpus = (plan.cpus_per_proc or 0) * plan.procs_per_node or plan.profile.node.cores or 1
    for name, value in (("gpus", plan.gpus_per_node), ("procs", plan.procs_per_node), ("cpus", cpus)):
        select = select.replace(f"{{{name}}}", str(value))
    memory = f":mem={_mebibytes(plan.memory_gib)}mb" if plan.memory_gib else ""
    return f"{plan.nodes}{select}{memory}"


def _mebibytes(gib: float) -> int:
    """Return at least 1: to Slurm ``--mem=0`` is all that a node has."""
    return max(1, round(gib * 1024))


def _mpi_procs(plan: Plan) -> int:
    """Return the number of processes that mpirun starts at most, 0 if it starts none; PJM wants to know."""
    started = {"mpirun": plan.world_size, "torchrun": plan.nodes if plan.nodes > 1 else 0}
    return max(started.get(launcher, 0) for launcher in plan.launchers)
