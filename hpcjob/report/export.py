"""Runs as CSV and as JSON lines: one row an iteration, numbers as the log has them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from hpcjob.report.quantities import EXTRA_COLUMNS, NAMES
from hpcjob.report.runs import Run

_KEPT = (*NAMES, *EXTRA_COLUMNS)
COLUMNS = ("run", "attempt", "iteration", *_KEPT, "validation_loss", "checkpoint", "restart", "test_loss")
"""Columns of the CSV. ``attempt`` counts from 1; ``checkpoint``, ``restart`` are 1 where one was saved, one began."""
_LIST_BLOCK = 4096


def write_csv(runs: Iterable[Run], stream: IO[str]) -> None:
    """Write `COLUMNS`: an empty cell is not told, ``nan`` and ``inf`` are what the log says."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        for row in rows(run):
            writer.writerow([_cell(row.get(column)) for column in COLUMNS])


def write_json(runs: Iterable[Run], stream: IO[str]) -> None:
    """Write one object a row; what is not told is left out, null is a number that is not finite."""
    for run in runs:
        for row in rows(run):
            told = {key: None if _is_odd(value) else value for key, value in row.items()}
            stream.write(json.dumps(told, ensure_ascii=False, allow_nan=False) + "\n")


def rows(run: Run) -> Iterator[dict[str, Any]]:
    """Give what is known at each step of a run, in order; validations and checkpoints may stand between the rows."""
    saved = set(run.checkpoints)
    others = sorted({*run.validations, *run.tests, *saved} - set(run.table.steps.tolist()))
    place, attempt = 0, 0
    for step, values, told, number in _listed(run):
        while place < len(others) and others[place] < step:
            yield _row(run, others[place], attempt or number, saved)
            place += 1
        row = _row(run, step, number, saved)
        row.update((name, value) for name, value, known in zip(_KEPT, values, told, strict=True) if known)
        if attempt and number != attempt:
            row["restart"] = 1
        attempt = number
        yield row
    for step in others[place:]:
        yield _row(run, step, attempt, saved)


def _listed(run: Run) -> Iterator[tuple[int, Sequence[float], Sequence[bool], int]]:
    """Give (step, values, told, attempt) of each row as Python's numbers, a block at a time."""
    for start in range(0, len(run.table), _LIST_BLOCK):
        block = slice(start, start + _LIST_BLOCK)
        table = run.table
        yield from zip(
            table.steps[block].tolist(),
            table.values[block].tolist(),
            table.told[block].tolist(),
            run.attempts[block].tolist(),
            strict=True,
        )


def _row(run: Run, step: int, attempt: int, saved: set[int]) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run.name, "attempt": attempt, "iteration": step}
    if step in run.validations:
        row["validation_loss"] = run.validations[step]
    if step in run.tests:
        row["test_loss"] = run.tests[step]
    if step in saved:
        row["checkpoint"] = 1
    return row


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        # A spreadsheet would take such a name for a formula.
        return "'" + value if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    return repr(value)
