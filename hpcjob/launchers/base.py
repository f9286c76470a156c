"""What launchers have in common: words of a launch line, and the two scripts that a line starts.

A launch line starts either ``rank.sh``, once for each rank, or ``node.sh``, once for each node; both are written into
the job folder by the job script. What they run is in the step's file, never on the launch line: mpirun and srun give a
lone ``:`` a meaning of their own, and pdsh hands its line to a shell on each node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hpcjob.plan import Plan
from hpcjob.quoting import ScriptText

Word = str | ScriptText
"""A plain word is quoted when the script is rendered; a `ScriptText` is shell text written here."""

Launcher = Callable[[Plan, ScriptText], Sequence[Sequence[Word]]]
"""Returns the words that start a step on all nodes, by lines, given the plan and the word of the step's file."""

RANK_SH = ScriptText('"$jobdir/rank.sh"')
NODE_SH = ScriptText('"$jobdir/node.sh"')


def is_lone_rank(plan: Plan) -> bool:
    """Whether the job is one process of a command, and no launcher was chosen: it needs neither agent nor torch."""
    is_free = plan.job.command is not None and plan.job.launcher is None
    return is_free and plan.world_size == 1 and plan.profile.scheduler.type != "slurm"


def on_this_node(plan: Plan, step_file: ScriptText) -> list[Word]:
    """Return the words that start the ranks of the only node, this one: by torchrun's agent, a lone rank directly."""
    if is_lone_rank(plan):
        return ["env", "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "bash", RANK_SH, step_file]
    return ["bash", NODE_SH, step_file, "0"]


def has_option(arguments: Sequence[str], *names: str) -> bool:
    """Whether the profile's own ``arguments`` give one of these options: as ``--x y``, ``-x y`` or ``--x=y``."""
    given = {argument.partition("=")[0].lstrip("-") for argument in arguments if argument.startswith("-")}
    return any(name.lstrip("-") in given for name in names)
