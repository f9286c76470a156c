"""What a plan asks of its scheduler: the values that the directives of a script's template are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpcjob.after import Dependency
from hpcjob.arrays import parse_spec, tasks_of
from hpcjob.errors import InputError
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
_ASKED = ("exclude", "nodelist", "constraint", "qos", "exclusive", "reservation")


def request(plan: Plan) -> dict[str, Any]:
    """Return name -> value for the ``directives`` block of a template.

    Raises:
        InputError: the job asks for what its scheduler cannot be asked for; the message names the key.
    """
    job, scheduler = plan.job, plan.profile.scheduler
    for key, value in (("memory", plan.memory_gib), *((key, getattr(job, key)) for key in _ASKED)):
        if value:
            require(scheduler.type, key)
    _check_array(plan)
    dependencies = _dependencies(plan)
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
        "nodelist": ",".join(job.nodelist),
        "constraint": job.constraint,
        "qos": job.qos,
        "exclusive": "True" if job.exclusive else None,
        "mail": _mail(plan),
        "mail_to": job.mail_to,
        "walltime_s": plan.walltime_s,
        "tasks": tasks_of(plan.array.spec, scheduler.type).spec if plan.array else None,
        "array_limit": plan.array.limit if plan.array else None,
        "dependencies": dependencies,
        "nodes": plan.nodes,
        "gpus": plan.gpus_per_node,
        "gpu_request": scheduler.gpu_request,
        "procs_per_node": plan.procs_per_node,
        "cpus_per_proc": plan.cpus_per_proc,
        "memory_mib": _mebibytes(plan.memory_gib) if plan.memory_gib else None,
        "walltime": format_clock(plan.walltime_s),
        "signal_s": plan.stop_before_s if warned else 0,
        "notify": scheduler.type == "gridengine" and scheduler.notify,
        "timer_s": plan.walltime_s - plan.stop_before_s if plan.stop_before_s and not warned else 0,
        "select": _select(plan),
        # PBS takes no array that it may not start again.
        "rerunnable": scheduler.rerunnable or (scheduler.type == "pbs" and plan.array is not None),
        "variables": variables,
        "extra": extra,
        "mpi_procs": _mpi_procs(plan),
    }


def _check_array(plan: Plan) -> None:
    """Refuse an array that the scheduler cannot run, with the reason."""
    if plan.array is None:
        return
    scheduler, most = plan.profile.scheduler.type, plan.profile.limits.array
    indices = parse_spec(plan.array.spec)
    if most == 0:
        raise InputError(
            f"array: {plan.profile.name} does not run arrays (limits.array is 0)",
            hint="use `sweep`: one job for each value",
        )
    if most is not None and (indices[-1] >= most if scheduler == "slurm" else len(indices) > most):
        asked, limit = (
            (f"index {indices[-1]}", "less than") if scheduler == "slurm" else (f"{len(indices)} elements", "at most")
        )
        raise InputError(
            f"array: {asked}, {plan.profile.name} accepts {limit} {most}", hint="split it into several jobs"
        )
    if scheduler == "pbs" and len(indices) == 1:
        raise InputError("array: PBS accepts no array of one element", hint="submit a job without `array`")
    if scheduler == "pjm" and plan.array.limit is not None:
        raise InputError(
            "array_limit: PJM cannot limit how many elements of a bulk job run at once",
            hint="remove the limit, or submit the elements in several jobs one after another (--chain)",
        )


def script_checks(plan: Plan) -> list[Dependency]:
    """Return the conditions on earlier jobs that the script itself checks, by their exit records.

    Grid Engine waits for an end, not for a code; PJM orders the steps of a step job; PBS judges an array by the element
    that ends last.
    """
    by_script = {"gridengine": True, "pjm": True}.get(plan.profile.scheduler.type, False)
    pbs = plan.profile.scheduler.type == "pbs"
    return [one for one in plan.after if one.condition != "any" and (by_script or (pbs and one.is_array))]


def _dependencies(plan: Plan) -> str:
    """Return the value of the directive for the jobs that have to end first; empty where there is none."""
    scheduler = plan.profile.scheduler.type
    for one in script_checks(plan):
        if not one.records:
            raise InputError(
                f"after: no record of job {one.id}, and {scheduler} does not look at exit codes",
                hint=f"hpcjob attach {one.id} -p {plan.profile.name}, or after: {{any: {one.id}}}",
            )
    if scheduler == "gridengine":
        return ",".join(one.own_id for one in plan.after)
    checked = script_checks(plan)
    return ",".join(f"afterany:{one.own_id}" if one in checked else one.directive for one in plan.after)


_MAIL = {
    "slurm": ({"begin": "BEGIN", "end": "END", "fail": "FAIL"}, ","),
    "pbs": ({"begin": "b", "end": "e", "fail": "a"}, ""),
    "gridengine": ({"begin": "b", "end": "e", "fail": "a"}, ""),
    "pjm": ({"begin": "b", "end": "e", "fail": "e"}, ","),
}


def _mail(plan: Plan) -> str | None:
    """Return when a mail is to be sent, in the scheduler's letters."""
    job = plan.job
    if not job.mail:
        return None
    require(plan.profile.scheduler.type, "mail")
    if job.mail_to is None:
        raise InputError("mail: no address", hint="give mail_to in the job file or in ~/.config/hpcjob/config.yml")
    words, between = _MAIL[plan.profile.scheduler.type]
    return between.join(dict.fromkeys(words[when] for when in job.mail))


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
