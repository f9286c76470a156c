"""A step in the words of the templates: its command, its variables, its Python and the line that starts it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hpcjob.elements import element_word
from hpcjob.launchers import launch_line
from hpcjob.plan import Plan, PlannedStep
from hpcjob.quoting import ScriptText
from hpcjob.rendering.python import python_context
from hpcjob.rendering.variables import step_variables

_LINE_LENGTH = 100  # about, of the words of a command


def step_context(plan: Plan, step: PlannedStep, number: int) -> dict[str, Any]:
    """Return what the templates see of a step, the first being number 1.

    Raises:
        InputError: a variable or a word of the command is refused; the message names its key.
    """
    several = len(plan.steps) > 1
    work = "train" if step.is_train else "command"
    above = f"steps[{number - 1}]." if several else ""
    key = f"{above}{work}"
    world_size = 1 if step.launcher == "none" else plan.world_size
    return {
        "number": number,
        "name": step.name,
        "name_json": json.dumps(step.name, ensure_ascii=False),
        "kind": work,
        "key": key,
        "launcher": step.launcher,
        "world_size": world_size,
        "env": step_variables(plan, step, f"{above}env", world_size),
        "python": None if step.python == plan.steps[0].python else python_context(plan, step.python, [step]),
        "argv": _argv([element_word(word, plan.array, key) for word in step.argv]),
        "launch": launch_line(plan, step.launcher, ScriptText(f'"$jobdir/step{number}.sh"')),
    }


def _argv(words: Sequence[str]) -> list[list[str]]:
    """Return the words of a step by lines: each long option begins one. rank.sh puts the step's Python for `python`."""
    lines: list[list[str]] = [[]]
    for word in words:
        if lines[-1] and (word.startswith("--") or sum(map(len, lines[-1])) + len(word) > _LINE_LENGTH):
            lines.append([])
        lines[-1].append(word)
    return lines
