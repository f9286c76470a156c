"""Open MPI's mpirun, which starts one process per GPU, or one agent per node for other launchers.

Source: mpirun(1) of Open MPI 4.1. Nothing is forwarded with ``-x``: every rank sources the job's environment file.
"""

from __future__ import annotations

from hpcjob.launchers.base import RANK_SH, Word, has_option
from hpcjob.plan import Plan
from hpcjob.quoting import ScriptText


def launch(plan: Plan, step_file: ScriptText) -> list[list[Word]]:
    """Start every rank."""
    return [start(plan, plan.procs_per_node), ["bash", RANK_SH, step_file]]


def start(plan: Plan, per_node: int) -> list[Word]:
    """Return the words that start ``per_node`` processes on each node; what they are follows.

    The profile's own options win. Batch systems may grant one slot a node whatever the number of GPUs, so slots are not
    counted (OVERSUBSCRIBE). Inside Slurm the allocation is used, elsewhere the hostfile.
    """
    given = plan.profile.launcher.mpirun_args
    words: list[Word] = [*_cpus_of_node(plan), ScriptText('"$mpirun"'), "-np", str(plan.nodes * per_node)]
    if plan.profile.scheduler.type != "slurm":
        words += ["--hostfile", ScriptText('"$jobdir/hostfile"')]
    if has_option(given, "--map-by"):
        words += ["--npernode", str(per_node), "--oversubscribe"]
    else:
        words += ["--map-by", f"ppr:{per_node}:node:OVERSUBSCRIBE"]
    if not has_option(given, "--bind-to"):
        words += ["--bind-to", "none"]
    return [*words, *_interface(plan), *given]


def _cpus_of_node(plan: Plan) -> list[Word]:
    """Inside Slurm mpirun starts a daemon a node by srun, which needs the CPUs of all ranks there, not those of one.

    Source: srun(1), --cpus-per-task, which implies --exact; later PRRTE asks for a node's CPUs itself.
    """
    if plan.profile.scheduler.type != "slurm" or not plan.cpus_per_proc:
        return []
    return ["env", f"SRUN_CPUS_PER_TASK={plan.cpus_per_proc * plan.procs_per_node}"]


def _interface(plan: Plan) -> list[str]:
    """Open MPI's own connections go through the profile's interface, unless its options name one."""
    interface = plan.profile.network_interface
    if interface is None or plan.nodes == 1:
        return []
    words = []
    for parameter in ("oob_tcp_if_include", "btl_tcp_if_include"):
        if parameter not in plan.profile.launcher.mpirun_args:
            words += ["--mca", parameter, interface]
    return words
