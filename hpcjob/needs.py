"""What a job's script looks for before its launch, looked for at submission: it costs nothing yet."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hpcjob.documents.places import placed
from hpcjob.errors import InputError
from hpcjob.home import expanded
from hpcjob.job import JobFile, Python
from neoxlite.common.paths import exists

if TYPE_CHECKING:
    from hpcjob.plan import Plan

_HINT = "the job would end before its launch: fix this, or submit anyway with --no-check"
_MOST_ELEMENTS = 1000
# Name in `limits`, what it is to the system, and how many of its units are one of ulimit's.
_LIMITS = (
    ("nofile", resource.RLIMIT_NOFILE, 1),
    ("memlock", resource.RLIMIT_MEMLOCK, 1024),
    ("stack", resource.RLIMIT_STACK, 1024),
)


def check_needs(plan: Plan, *, is_first: bool = True) -> list[str]:
    """Look for the files that the script of ``plan`` needs, from the current folder, and for limits of this machine.

    Args:
        is_first: whether nothing that is submitted before it may make them.

    Returns:
        Notes: files that are not here, where the nodes may see more than this machine, or an earlier job may make them.

    Raises:
        InputError: the job is sure to fail; the message names the key, and the keys of further files.
    """
    is_local = plan.profile.scheduler.type == "local"
    notes: list[str] = []
    lacking: list[str] = []
    with placed(plan.places, JobFile.__struct_fields__):
        if is_local:
            _check_limits(plan)
        for key, path in _missing(plan):
            told = f"{key}: {path} does not exist here"
            if is_first and not plan.after and (is_local or not path.startswith(("/", "~/"))):
                lacking.append(told if not lacking else f"{key}: {path}")
            else:
                notes.append(f"{told}; a job that finds none ends before its launch")
        if lacking:
            raise InputError("; nor does ".join(lacking), hint=_HINT)
    return notes


def _missing(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield key and path of each file that is not here; of those of an array's elements the first.

    Not of disks that each node has for itself: what is on them is seen there alone.
    """
    for key, text in _files(plan):
        for path in _of_elements(text, plan):
            is_shared = not any(Path(path).is_relative_to(folder) for folder in plan.profile.paths.not_shared)
            if is_shared and not _is_here(path):
                yield key, path
                break


def _files(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield key and path of each file. The Python of a later step is not among them: an earlier one may make it."""
    python = (plan.job.steps[0].python if plan.job.steps else None) or plan.job.python or Python()
    for file in plan.job.source:
        yield "source", file
    if python.venv:
        yield "python.venv", f"{python.venv}/bin/activate"
    if python.executable and "/" in python.executable:
        yield "python.executable", python.executable
    if python.container and "://" not in python.container.image:
        yield "python.container.image", python.container.image
    for file in plan.job.stage_in:
        yield "stage_in", file


def _of_elements(text: str, plan: Plan) -> Iterator[str]:
    """Yield what ``text`` is to each element of an array, of the first thousand; of a name without one nothing."""
    if plan.array is None or "{array." not in text:
        yield from () if "{array." in text else (text,)
        return
    values = plan.array.values or map(str, plan.array.indices)
    for index, value in islice(zip(plan.array.indices, values, strict=True), _MOST_ELEMENTS):
        yield text.replace("{array.index}", str(index)).replace("{array.value}", value)


def _is_here(path: str) -> bool:
    try:
        return exists(expanded(path))
    except OSError:
        return False


def _check_limits(plan: Plan) -> None:
    """Raise InputError where this machine does not allow what is asked."""
    for name, number, unit in _LIMITS:
        asked = getattr(plan.job.limits, name, None)
        most = resource.getrlimit(number)[1]
        if asked is None or most == resource.RLIM_INFINITY:
            continue
        if asked == "unlimited" or asked * unit > most:
            raise InputError(f"limits.{name}: {asked} requested, at most {most // unit} is allowed here", hint=_HINT)
