"""torchrun: one agent on each node starts that node's ranks; srun or mpirun starts the agents."""

from __future__ import annotations

from hpcjob.launchers import mpirun, srun
from hpcjob.launchers.base import NODE_SH, Word, on_this_node
from hpcjob.plan import Plan
from hpcjob.quoting import ScriptText


def launch(plan: Plan, step_file: ScriptText) -> list[list[Word]]:
    """Start an agent on each node: by srun inside Slurm, else by mpirun; directly where the only node is this one."""
    agent: list[Word] = ["bash", NODE_SH, step_file]
    if plan.profile.scheduler.type == "slurm":
        return [srun.start(plan, 1), [*agent, "srun"]]
    if plan.nodes == 1:
        return [on_this_node(plan, step_file)]
    return [mpirun.start(plan, 1), [*agent, "mpirun"]]
