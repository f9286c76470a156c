"""All that the template of a job script sees."""

from __future__ import annotations

from typing import Any

import msgspec

from hpcjob.arrays import parse_spec, tasks_of
from hpcjob.elements import element_word
from hpcjob.errors import InputError
from hpcjob.job import Ulimits
from hpcjob.launchers.base import is_lone_rank
from hpcjob.plan import Plan, PlannedStep
from hpcjob.quoting import ScriptText
from hpcjob.rendering.python import python_context
from hpcjob.rendering.steps import step_context
from hpcjob.rendering.variables import network, variables
from hpcjob.schedulers.requests import request, script_checks
from hpcjob.units import format_clock
from neoxlite.common.counting import counted


def job_context(plan: Plan, jobdir: str | None) -> dict[str, Any]:
    """Return what the template of ``plan`` sees. Raises InputError with the key of a value that is refused."""
    return {
        **request(plan),
        **_software(plan),
        **_network(plan),
        "name": plan.name,
        "jobdir": jobdir,
        "notes": plan.notes,
        "summary": _summary(plan),
        "gpu_wrong": ScriptText("<" if plan.profile.scheduler.type == "local" else "!="),
        "env": variables(plan.env, "env", plan.array),
        "names_of_env": sorted(plan.env),
        "array": _array(plan),
        "limits": _limits(plan.job.limits),
        "bind": plan.job.bind,
        "scratch": plan.profile.node.scratch,
        "stage_in": _staged(plan, "stage_in"),
        "stage_out": _staged(plan, "stage_out"),
        "after": _after(plan),
        "nccl_file": plan.gpus_per_node and "NCCL_DEBUG_FILE" not in plan.env,
        "flight_recorder": plan.gpus_per_node and not any("_FR_" in name or "_TRACE_BUF" in name for name in plan.env),
        "peak_tflops": _peak(plan),
        "steps": [step_context(plan, step, number) for number, step in enumerate(plan.steps, 1)],
    }


def _peak(plan: Plan) -> str | None:
    """Return the peak that MFU is a part of, in TFLOP/s; of a CPU none is known."""
    peak = plan.profile.node.peak_tflops if plan.gpus_per_node else None
    return f"{peak:g}" if peak else None


def _software(plan: Plan) -> dict[str, Any]:
    """Return what is loaded, and what has to be there, before the first step."""
    profile, first = plan.profile, plan.steps[0].python
    return {
        "modules": plan.modules,
        "module_use": plan.module_use,
        "module_init": profile.modules.init,
        "module_purge": profile.modules.purge,
        "source": plan.job.source,
        "pyxis": profile.scheduler.uses_pyxis and any(step.python.container for step in plan.steps),
        "python": python_context(plan, first, [step for step in plan.steps if step.python == first]),
        "versions": (profile.versions.cuda or "-", profile.versions.nccl or "-", profile.versions.nccl_from),
        "commands": _commands(plan),
        "mpirun": _mpirun(plan),
        "mpirun_failure": f"launcher: there is no {profile.launcher.mpirun} on PATH",
    }


def _network(plan: Plan) -> dict[str, Any]:
    """Return how the nodes reach one another, and the world."""
    profile = plan.profile
    return {
        "network": network(plan),
        "internet": "1" if profile.internet else "0",
        "interface": profile.network_interface,
        "hosts": plan.hosts,
        "master_addr": plan.master_addr,
        "master_port": plan.master_port,
        "port_base": profile.master_port_base,
        "agents": any(step.launcher in ("torchrun", "pdsh") for step in plan.steps),
        "remote": plan.nodes > 1 and "pdsh" in plan.launchers,
        "ssh_port": profile.ssh.port,
    }


def _how(plan: Plan, step: PlannedStep) -> str:
    if step.launcher == "none":
        return "on the first node" if plan.nodes > 1 else "directly"
    return "directly" if step.launcher in ("torchrun", "pdsh") and is_lone_rank(plan) else step.launcher


def _summary(plan: Plan) -> str:
    gpus = f"{plan.nodes} x {counted(plan.gpus_per_node, 'GPU')}" if plan.gpus_per_node else "no GPUs"
    shape = f"{gpus}, {plan.nodes} x {counted(plan.procs_per_node, 'rank')}"
    steps = ", ".join(f"{step.name} ({_how(plan, step)})" for step in plan.steps)
    walltime = f", walltime {format_clock(plan.walltime_s)}" if plan.walltime_s else ""
    return f"{shape}{walltime}; {steps}"


def _commands(plan: Plan) -> list[dict[str, str]]:
    """Return the commands that the launch lines need, mpirun excepted."""
    needed = {"pdsh"} if "pdsh" in plan.launchers and plan.nodes > 1 else set()
    if plan.profile.scheduler.type == "slurm" and {"srun", "torchrun"} & set(plan.launchers):
        needed.add("srun")
    return [{"name": name, "failure": f"launcher: there is no {name} on PATH"} for name in sorted(needed)]


def _mpirun(plan: Plan) -> str | None:
    agents = plan.profile.scheduler.type != "slurm" and plan.nodes > 1 and "torchrun" in plan.launchers
    return plan.profile.launcher.mpirun if agents or "mpirun" in plan.launchers else None


def _array(plan: Plan) -> dict[str, Any] | None:
    """Return what the script of an array needs to know which element it is."""
    if plan.array is None:
        return None
    indices = parse_spec(plan.array.spec)
    tasks = tasks_of(plan.array.spec, plan.profile.scheduler.type)
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    even = list(indices) == list(range(indices[0], indices[0] + len(indices) * step, step))
    return {
        "same": tasks.same,
        "first_task": tasks.first,
        "start": indices[0],
        "step": step if even else 0,
        "indices": indices,
        "values": plan.array.values or (),
        "count": len(indices),
        "limit": plan.array.limit or 0,
        "one_at_once": plan.gpus_per_node > 0,
    }


def _limits(limits: Ulimits | None) -> list[dict[str, str]]:
    """Return the letters of ``ulimit`` and the values asked for."""
    asked = msgspec.structs.asdict(limits) if limits else {}
    letters = {"nofile": "n", "memlock": "l", "stack": "s"}
    return [
        {"letter": f"-S{letters[name]}", "most": f"-H{letters[name]}", "value": str(value), "key": f"limits.{name}"}
        for name, value in asked.items()
        if value is not None
    ]


def _staged(plan: Plan, key: str) -> list[str]:
    """Return the files to copy.

    Raises:
        InputError: the job has several nodes, each with a scratch of its own, or a name leads out of the scratch.
    """
    files: list[str] = getattr(plan.job, key)
    if files and plan.nodes > 1:
        raise InputError(
            f"{key}: {plan.nodes} nodes, and each has a scratch of its own",
            hint="copy in the command: each rank of LOCAL_RANK 0 to $HPCJOB_SCRATCH of its node",
        )
    if key == "stage_out":
        for name in files:
            if name.startswith("/") or ".." in name.split("/"):
                raise InputError(f"{key}: {name!r} leads out of the scratch folder", hint="give a name inside it")
    return [element_word(name, plan.array, key, is_path=key == "stage_in") for name in files]


def _after(plan: Plan) -> list[dict[str, Any]]:
    """Return the conditions on earlier jobs that the script has to check itself; see docs/job-file.md."""
    return [
        {"failure": f"after: {one.failure}", "condition": one.condition, "records": one.records}
        for one in script_checks(plan)
    ]
