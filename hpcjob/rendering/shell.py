"""What the template of an interactive shell sees beside a job's."""

from __future__ import annotations

from typing import Any

from hpcjob.plan import Plan, PlannedStep
from hpcjob.rendering.steps import step_context
from neoxlite.common.counting import counted


def shell_context(plan: Plan) -> dict[str, Any]:
    """Return what the template of a shell needs beside a job's context: ``launch COMMAND`` is a step without a work."""
    launcher = next((step.launcher for step in plan.steps if step.launcher != "none"), plan.steps[0].launcher)
    any_ = PlannedStep(
        name="launch", argv=("true",), launcher=launcher, env={}, python=plan.steps[0].python, is_train=False
    )
    ranks = plan.world_size if launcher != "none" else 1
    shape = (
        f"{plan.nodes} x {counted(plan.gpus_per_node, 'GPU')}" if plan.gpus_per_node else counted(plan.nodes, "node")
    )
    started = f"{ranks} ranks by {launcher}" if ranks > 1 else "one process"
    work = ", ".join(step.name for step in plan.steps)
    return {
        "parent": f"{plan.profile.scheduler.type}.sh.j2",
        "any": step_context(plan, any_, 0),
        "shell_s": 0 if plan.profile.scheduler.type == "local" else plan.walltime_s,
        "shape": shape,
        "shell_ranks": ranks,
        "advice": f"; `launch COMMAND...`: {started}; `launch` alone runs the job's work ({work}); "
        "`exit` ends the session",
    }
