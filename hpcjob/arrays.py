"""Arrays of jobs: which elements there are, and how the numbers of a scheduler stand for them.

An element has an *index*, which the user gives and sees everywhere (``12345_7``), and a *value*: the text of its list
item or line, else its index. A scheduler counts its tasks in its own way: Grid Engine from 1, PBS and PJM without gaps.
Where these differ the script turns the one into the other, and so does who asks about an element.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec

from hpcjob.errors import InputError
from hpcjob.home import expanded
from hpcjob.job import ArrayLines, JobFile
from hpcjob.regular import read_regular

MOST = 75_000  # elements: what the largest of the known sites take (ABCI's manual)
_MOST_INDEX = 999_999  # the largest bulk number of PJM; Slurm and PBS end earlier, by their settings
_MOST_VALUES_BYTES = 1_000_000  # they stand in the script; Slurm takes one of 4 MiB
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_HINT = "write for example 0-9, 0-8:4, 1,3,7 or 0-99%4; a list of values; or {lines: FILE}"


class Array(msgspec.Struct, frozen=True, kw_only=True):
    """The elements of an array.

    Attributes:
        spec: their indices, ascending, as ``0-9`` or ``1,3,10-20:5``.
        limit: how many may run at once; None: as many as there is room for.
        values: the value of each, in the order of the indices; None: the indices themselves.
    """

    spec: str
    limit: int | None = None
    values: tuple[str, ...] | None = None

    @property
    def indices(self) -> tuple[int, ...]:
        """The indices, ascending."""
        return parse_spec(self.spec)

    def value(self, index: int) -> str:
        """Return the value of the element with that index."""
        return str(index) if self.values is None else self.values[self.indices.index(index)]


@functools.lru_cache(maxsize=64)
def parse_spec(spec: str) -> tuple[int, ...]:
    """Return the indices of ``1,3,10-20:5``, ascending, each once.

    Raises:
        InputError: it is no such text, holds no index or too many.
    """
    found: set[int] = set()
    for part in spec.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise InputError(f"array: {part.strip()!r} is not a range of indices", hint=_HINT)
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if step < 1:
            raise InputError(f"array: {part.strip()!r}: the step is 0", hint="write a step of 1 or more, or none")
        if last < first:
            raise InputError(f"array: {part.strip()!r} is empty", hint="write the smaller index first")
        if last > _MOST_INDEX:
            raise InputError(f"array: index {last}, the largest is {_MOST_INDEX}", hint="use smaller indices")
        if len(range(first, last + 1, step)) > MOST:
            raise _too_many(len(range(first, last + 1, step)))
        found.update(range(first, last + 1, step))
    if len(found) > MOST:
        raise _too_many(len(found))
    return tuple(sorted(found))


def _too_many(count: int) -> InputError:
    return InputError(f"array: {count} elements, at most {MOST} are taken", hint="split it into several jobs")


def format_spec(indices: Sequence[int]) -> str:
    """Return ascending indices as the shortest text that `parse_spec` reads: ``0-9``, ``0-8:4``, ``1,3,7``."""
    if len(indices) > 2 and (step := _step(indices)):
        return f"{indices[0]}-{indices[-1]}" + (f":{step}" if step > 1 else "")
    parts: list[list[int]] = []
    for index in indices:
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _step(indices: Sequence[int]) -> int | None:
    """Return the distance of neighbours where it is the same everywhere."""
    steps = {after - before for before, after in itertools.pairwise(indices)}
    return steps.pop() if len(steps) == 1 else None


def with_lines(job: JobFile) -> JobFile:
    """Return ``job`` with the lines of the file that its array names, so that it no longer depends on that file.

    Raises:
        InputError: the file cannot be read, is not UTF-8 or has no line.
    """
    if not isinstance(job.array, ArrayLines):
        return job
    path = expanded(job.array.lines)
    try:
        text = read_regular(path, _MOST_VALUES_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"array.lines: {path}: {error.strerror}", hint="give a text file, one value a line") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"array.lines: {path}: byte {error.start} is not UTF-8", hint="save the file as UTF-8"
        ) from None
    if len(text.encode()) > _MOST_VALUES_BYTES:
        raise InputError(
            f"array.lines: {path}: more than {_MOST_VALUES_BYTES} bytes",
            hint="let each element read its own line of the file by HPCJOB_ARRAY_INDEX: array: 0-N",
        )
    lines = [line.rstrip("\r") for line in text.split("\n") if line.strip()]
    if not lines:
        raise InputError(f"array.lines: {path}: no line in it", hint="write one value a line; blank lines do not count")
    return msgspec.structs.replace(job, array=lines)


def array_of(job: JobFile) -> Array | None:
    """Return the array that a job asks for; None if it is a single one.

    Raises:
        InputError: it is no array, or two limits are given.
    """
    job = with_lines(job)
    array = job.array
    if array is None:
        if job.array_limit is not None:
            raise InputError("array_limit: given without `array`", hint="add array: 0-9, or remove array_limit")
        return None
    if isinstance(array, list):
        return _of_values([_text(value) for value in array], job.array_limit)
    spec, percent, limit = str(array).partition("%")
    if percent and (not re.fullmatch(r"[1-9]\d{0,5}", limit.strip(), re.ASCII) or job.array_limit is not None):
        two = "given twice, here and as array_limit" if job.array_limit is not None else "a limit is a number from 1 on"
        raise InputError(f"array: %{limit.strip()}: {two}", hint="write for example 0-99%4")
    indices = parse_spec(spec)
    return Array(spec=format_spec(indices), limit=int(limit) if percent else job.array_limit)


def _text(value: str | int | float) -> str:
    return value if isinstance(value, str) else f"{value!r}"


def _of_values(values: list[str], limit: int | None) -> Array:
    if not values:
        raise InputError("array: an empty list", hint=_HINT)
    if len(values) > MOST:
        raise _too_many(len(values))
    if sum(len(value.encode(errors="replace")) for value in values) > _MOST_VALUES_BYTES:
        raise InputError(
            f"array: its values are more than {_MOST_VALUES_BYTES} bytes", hint="put them into files, and list these"
        )
    return Array(spec=format_spec(range(len(values))), limit=limit, values=tuple(values))


# --- the numbers of a scheduler ---------------------------------------------------------------------------------------


class Tasks(msgspec.Struct, frozen=True):
    """How a scheduler counts the elements of an array.

    Attributes:
        spec: what it is asked for.
        first: its number of the first element.
        same: whether its numbers are the indices.
    """

    spec: str
    first: int
    same: bool


def tasks_of(spec: str, scheduler: str) -> Tasks:
    """Return how ``scheduler`` counts the elements with the indices ``spec``.

    Slurm takes any list. PBS takes one range with a step, Grid Engine one that begins at 1 or later, PJM one without
    gaps; elsewhere they count from their first number on.
    """
    indices = parse_spec(spec)
    step = _step(indices) or (1 if len(indices) == 1 else None)
    native = {
        "slurm": True,
        "local": True,
        "pbs": step is not None,
        "gridengine": step is not None and indices[0] >= 1,
        "pjm": step == 1,
    }[scheduler]
    if native:
        text = spec
        if scheduler in ("pbs", "pjm") or (scheduler == "gridengine" and step):
            text = f"{indices[0]}-{indices[-1]}" + (f":{step}" if (step or 1) > 1 else "")
        return Tasks(text, indices[0], same=True)
    first = 1 if scheduler == "gridengine" else 0
    return Tasks(f"{first}-{first + len(indices) - 1}", first, same=False)


def task_of(spec: str, scheduler: str, index: int) -> int:
    """Return the number by which ``scheduler`` knows the element with that index."""
    tasks = tasks_of(spec, scheduler)
    return index if tasks.same else tasks.first + parse_spec(spec).index(index)


def numbered(spec: str, scheduler: str) -> Iterator[tuple[int, int]]:
    """Yield (index, the scheduler's number) of every element."""
    tasks = tasks_of(spec, scheduler)
    for position, index in enumerate(parse_spec(spec)):
        yield index, index if tasks.same else tasks.first + position
