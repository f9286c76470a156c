"""How commands show recorded jobs: in a table, as JSON, in words."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from neoxlite.common.printable import printable

if TYPE_CHECKING:
    from hpcjob.tracking.records import Record
    from hpcjob.tracking.status import Status

_COLOURS = {
    "PENDING": "yellow",
    "SUSPENDED": "yellow",
    "UNKNOWN": "magenta",
    "RUNNING": "cyan",
    "COMPLETING": "cyan",
    "COMPLETED": "green",
}


def describe(record: Record) -> dict[str, Any]:
    """Return what is known of a job without asking, as JSON shows it."""
    return {
        "id": record.id,
        "name": record.name,
        "profile": record.profile,
        "scheduler": record.scheduler,
        "server": record.server,
        "submitted": record.submitted,
        "nodes": record.nodes,
        "array": record.array,
        "after": list(record.after),
        "jobdir": str(record.jobdir),
        "log": record.log,
    }


def as_dict(record: Record, status: Status) -> dict[str, Any]:
    """Return a job and its status as JSON shows them; ``exit_code`` is null while there is none."""
    from hpcjob.tracking.exit_record import meaning

    code = status.exit_code
    return {
        **describe(record),
        "state": status.state.value,
        "exit_code": code,
        "meaning": None if code is None else meaning(code, status.state),
        "reason": status.reason,
        "source": status.source,
    }


def print_jobs(statuses: Iterable[tuple[Record, Status]], *, as_json: bool) -> None:
    """Print jobs in a table, or one JSON object a line."""
    if as_json:
        for record, status in statuses:
            print(json.dumps(as_dict(record, status), ensure_ascii=False))
        return
    from hpcjob.cli.table import print_table
    from hpcjob.tracking.watch import ago

    shown = list(statuses)
    rows = [
        {
            "id": record.id,
            "name": record.name,
            "profile": record.profile,
            "state": status.state.value,
            "exit": status.exit_code,
            "age": ago(record.age_s),
            "note": note_of(status),
        }
        for record, status in shown
    ]
    hide = {key for key in ("exit", "note") if all(row[key] is None for row in rows)}
    print_table(rows, hide=hide, fold=("name", "note"), paint=painter(sys.stdout, [status for _, status in shown]))


def print_told(record: Record, told: str, *, as_json: bool) -> None:
    """Print what became of an order for a job."""
    if as_json:
        print(json.dumps({"id": record.id, "profile": record.profile, "told": told}, ensure_ascii=False), flush=True)
    else:
        print(f"{record.id}  {printable(record.name)}  {told}", flush=True)


def note_of(status: Status) -> str | None:
    """Return what an exit code of our scripts means, else the reason of the state."""
    from hpcjob.schedulers.reasons import never_starts
    from hpcjob.states import State
    from hpcjob.tracking.exit_record import meaning

    if status.state is State.PENDING and (never := never_starts(status.reason)):
        return f"{status.reason}: cannot start, it {never.why}"
    told = None if status.exit_code is None else meaning(status.exit_code, status.state)
    if status.is_clean_stop:
        return f"{told}: submit it again to continue"
    return told or status.reason


def has_colours(stream: Any) -> bool:
    """Whether a stream is a terminal whose user wants colours (https://no-color.org)."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR")


def painter(stream: Any, statuses: Sequence[Status]) -> Callable[[str, str, int], str] | None:
    """Return what colours a cell (column, text, number of the row), or None where ``stream`` is to have no colours."""
    if not has_colours(stream):
        return None
    return lambda column, text, row: click.style(text, fg=colour_of(statuses[row])) if column == "state" else text


def colour_of(status: Status) -> str:
    """Return the colour of a state: red for what went wrong."""
    return "yellow" if status.is_clean_stop else _COLOURS.get(status.state.value, "red")
