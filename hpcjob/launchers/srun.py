"""Slurm's srun, which starts one process per GPU, or one agent per node for other launchers.

Source: srun(1) of Slurm 22.05. Since that release srun does not take ``--cpus-per-task`` over from sbatch, so it is
repeated.
"""

from __future__ import annotations

from hpcjob.launchers.base import RANK_SH, Word, has_option
from hpcjob.plan import Plan
from hpcjob.quoting import ScriptText

_IMAGE = ScriptText('"${container_options[@]}"')  # made where Python is set up


def launch(plan: Plan, step_file: ScriptText) -> list[list[Word]]:
    """Start every rank."""
    return [start(plan, plan.procs_per_node), ["bash", RANK_SH, step_file]]


def start(plan: Plan, per_node: int) -> list[Word]:
    """Return the words that start ``per_node`` tasks on each node, with all CPUs of the node's ranks between them."""
    words: list[Word] = ["srun", f"--nodes={plan.nodes}", f"--ntasks={plan.nodes * per_node}"]
    words += [f"--ntasks-per-node={per_node}"]
    if plan.cpus_per_proc:
        words += [f"--cpus-per-task={plan.cpus_per_proc * plan.procs_per_node // per_node}"]
    if plan.job.bind == "cores" and not has_option(plan.profile.launcher.srun_args, "--cpu-bind"):
        words += ["--cpu-bind=cores"]
    in_image = plan.profile.scheduler.uses_pyxis and any(step.python.container for step in plan.steps)
    words += ["--export=ALL,HPCJOB_IN_IMAGE=1", _IMAGE] if in_image else ["--export=ALL"]
    return [*words, "--kill-on-bad-exit=1", *plan.profile.launcher.srun_args]
