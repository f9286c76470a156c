"""What the commands about recorded jobs share: choosing them, showing them in a table or as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hpcjob.tracking.index import Index
    from hpcjob.tracking.records import Record
    from hpcjob.tracking.status import Status

_MOST_NAMED = 6
_COLOURS = {
    "PENDING": "yellow",
    "SUSPENDED": "yellow",
    "UNKNOWN": "magenta",
    "RUNNING": "cyan",
    "COMPLETING": "cyan",
    "COMPLETED": "green",
}


def complete_recorded(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Complete ids and names of recorded jobs, the newest 200."""
    from click.shell_completion import CompletionItem

    from hpcjob.tracking.index import read_index

    words = {"latest": "the newest job"}
    for record in read_index().records[:200]:
        words.setdefault(record.id, f"{record.name} ({record.profile})")
        words.setdefault(record.name, record.profile)
    return [CompletionItem(word, help=text) for word, text in words.items() if word.startswith(incomplete)]


def load_index() -> Index:
    """Read the index; say on stderr what of it is damaged, or that it cannot be read."""
    from hpcjob.tracking.index import read_index, state_dir

    try:
        state_dir().exists()
    except OSError as error:
        print(f"hpcjob: {state_dir()}: {error.strerror}; the jobs recorded there are not seen", file=sys.stderr)
    index = read_index()
    for path, count in index.damaged.items():
        lines = "1 line is" if count == 1 else f"{count} lines are"
        print(f"hpcjob: {path}: {lines} damaged and left out", file=sys.stderr)
    return index


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
        "meaning": None if code is None else meaning(code),
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
        for record, status in statuses
    ]
    hide = {key for key in ("exit", "note") if all(row[key] is None for row in rows)}
    print_table(_printable(rows), hide=hide, paint=painter(sys.stdout))


def note_of(status: Status) -> str | None:
    """Return what an exit code of our scripts means, else the reason of the state."""
    from hpcjob.tracking.exit_record import meaning

    return (None if status.exit_code is None else meaning(status.exit_code)) or status.reason


def _printable(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A hostile name must not steer the terminal."""
    return [{key: printable(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows]


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def painter(stream: Any) -> Callable[[str, str], str] | None:
    """Return what colours a cell (column, text), or None where ``stream`` is no terminal or NO_COLOR is set."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return None
    return lambda column, text: state_colour(text) if column == "state" else text


def state_colour(text: str) -> str:
    """Return a state's word, padding kept, in its colour."""
    return click.style(text, fg=_COLOURS.get(text.strip(), "red"))


def chosen(names: Sequence[str], index: Index) -> list[Record]:
    """Return the records that ``names`` mean, each once. Raises UnknownJobError."""
    from hpcjob.tracking.lookup import find_job

    return list(dict.fromkeys(find_job(name, index) for name in names))


def chosen_for_order(names: Sequence[str], index: Index) -> list[Record]:
    """Return the records that ``names`` mean where something is done to them: a name never is a guess.

    Of jobs of one name it is the one that has not ended, else the newest; ids, ``latest`` and folders as in `chosen`.

    Raises:
        UnknownJobError: none is known, or several jobs of that name have not ended; they are listed.
    """
    from hpcjob.tracking.lookup import find_job

    return list(dict.fromkeys(_live_of_name(name, find_job(name, index), index) for name in names))


def _live_of_name(text: str, record: Record, index: Index) -> Record:
    from hpcjob.errors import UnknownJobError
    from hpcjob.tracking.watch import ago, refresh

    if text in (record.id, "latest") or not record.name.startswith(text):
        return record
    same = [other for other in index.records if other.name == record.name and not index.ended(other)]
    if same in ([], [record]):
        return record
    statuses = refresh(same, index)
    live = [other for other in same if not statuses[other].state.ended]
    if len(live) > 1:
        each = (f"{one.id} ({one.profile}, {statuses[one].state}, {ago(one.age_s)} ago)" for one in live[:_MOST_NAMED])
        more = f", and {len(live) - _MOST_NAMED} more" if len(live) > _MOST_NAMED else ""
        raise UnknownJobError(
            f"{text!r} means {len(live)} jobs that have not ended", hint=f"say which by id: {', '.join(each)}{more}"
        )
    return live[0] if live else record
