"""Launchers: each turns a plan into the one line that starts a step on all nodes.

To add one: a module here with ``launch``, a row in `LAUNCHERS`, its name in `hpcjob.job.LauncherName`, and its
refusals in `hpcjob.launchers.refusals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcjob.job import LauncherName
from hpcjob.launchers import mpirun, pdsh, srun, torchrun
from hpcjob.launchers.base import RANK_SH, Launcher, Word
from hpcjob.plan import Plan
from hpcjob.quoting import ScriptText


def _once(plan: Plan, step_file: ScriptText) -> list[list[Word]]:
    """Start one process on the first node."""
    return [["bash", RANK_SH, step_file]]


LAUNCHERS: Mapping[LauncherName, Launcher] = {
    "mpirun": mpirun.launch,
    "pdsh": pdsh.launch,
    "srun": srun.launch,
    "torchrun": torchrun.launch,
    "none": _once,
}


def launch_line(plan: Plan, launcher: LauncherName, step_file: ScriptText) -> Sequence[Sequence[Word]]:
    """Return the words that start a step, a line each; ``step_file`` is the word that names the step's file."""
    return LAUNCHERS[launcher](plan, step_file)
