"""The Python of a step: what a script needs to enter it, and what must be in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpcjob.job import Python
from hpcjob.launchers.base import is_lone_rank
from hpcjob.plan import Plan, PlannedStep
from hpcjob.quoting import ScriptText, sh_path

_BINDS = "python.container.binds"


def python_context(plan: Plan, python: Python, steps: Sequence[PlannedStep]) -> dict[str, Any]:
    """Return what a script needs to enter ``python``, with the packages that ``steps`` import from it."""
    packages = ["neoxlite", "deepspeed"] if any(step.is_train for step in steps) else []
    agents = any(step.launcher in ("torchrun", "pdsh") for step in steps) and not is_lone_rank(plan)
    if packages or agents:
        packages.append("torch")
    return {
        "venv": python.venv,
        "container": python.container and python.container.image,
        "binds": _binds(plan, python),
        "pyxis": plan.profile.scheduler.uses_pyxis,
        "conda": python.conda,
        "conda_failure": f"python.conda: {python.conda} could not be activated",
        "executable": python.executable,
        "executable_failure": f"python.executable: there is no {python.executable}",
        "packages": packages,
        "for_agents": packages == ["torch"],
    }


def _binds(plan: Plan, python: Python) -> list[ScriptText]:
    """Return the folders to bind, as words; pyxis wants source and target of each."""
    words = [(sh_path(bind, _BINDS), ":" in bind) for bind in (python.container.binds if python.container else [])]
    twice = plan.profile.scheduler.uses_pyxis
    return [ScriptText(f"{word}:{word}") if twice and not is_pair else word for word, is_pair in words]
