"""``hpcjob show``: everything that is known of one job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcjob.cli.choosing import complete_recorded
from hpcjob.regular import size_of
from neoxlite.common.printable import printable

if TYPE_CHECKING:
    from hpcjob.tracking.index import Index
    from hpcjob.tracking.records import Record
    from hpcjob.tracking.status import Status


@click.command()
@click.argument("job", default="latest", metavar="[JOB]", shell_complete=complete_recorded)
@click.option("--json", "as_json", is_flag=True, help="Print it as one JSON object.")
def show(job: str, as_json: bool) -> None:
    """Show one job (default: the newest): state and how it came there, script, command, files, exit record, outcome.

    JOB is an id, a name or the beginning of one, profile:id, a job directory, or 'latest'; JOB_7: an array's element.

    \b
    Examples:
      hpcjob show                            the newest job
      hpcjob show 12345 --json | jq .exit_record
    """
    from hpcjob.cli.choosing import load_index
    from hpcjob.tracking.lookup import find_job
    from hpcjob.tracking.watch import refresh

    index = load_index()
    record = find_job(job, index)
    details = _details(record, refresh([record], index)[record], index)
    if as_json:
        print(json.dumps(details, ensure_ascii=False))
        return
    for key, value in _lines(details):
        print(f"{key:<12} {printable(str(value))}".rstrip())


def _details(record: Record, status: Status, index: Index) -> dict[str, Any]:
    import msgspec

    from hpcjob.cli.jobs import as_dict
    from hpcjob.tracking.exit_record import read_exit_record, read_outcome

    changes = index.changes.get(record.key, [])
    times = [{"state": "SUBMITTED", "time": record.submitted}]
    times += [{"state": change.state.value, "time": change.time} for change in changes]
    return {
        **as_dict(record, status),
        "walltime_s": record.walltime_s,
        "submit_dir": record.submit_dir or None,
        "attached": record.attached,
        "script": _existing(record.jobdir / "script.sh"),
        "command": record.command,
        "seen": times,
        "exit_record": msgspec.to_builtins(read_exit_record(record.jobdir, record.id)),
        "outcome": msgspec.to_builtins(read_outcome(record.jobdir)),
        "files": _files(record.jobdir),
    }


def _existing(path: Path) -> str | None:
    return str(path) if path.is_file() else None


def _files(folder: Path) -> list[dict[str, Any]]:
    """Return name and bytes of what lies in the job directory; nothing if it is gone."""
    try:
        return [{"name": path.name, "bytes": size_of(path)} for path in sorted(folder.iterdir()) if path.is_file()]
    except OSError:
        return []


def _lines(details: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    from hpcjob.units import format_clock

    for key in ("id", "name", "profile", "server", "state", "exit_code", "meaning", "reason"):
        if details[key] not in (None, ""):
            yield key.replace("_", " "), details[key]
    if details["array"]:
        yield "array", details["array"]
    if details["after"]:
        yield "after", ", ".join(details["after"])
    yield "nodes", details["nodes"]
    if details["walltime_s"]:
        yield "walltime", format_clock(details["walltime_s"])
    for key in ("jobdir", "log", "script", "command", "submit_dir"):
        if details[key]:
            yield key.replace("_", " "), details[key]
    for number, seen in enumerate(details["seen"]):
        yield "" if number else "seen", f"{seen['time'][:19].replace('T', ' ')} UTC  {seen['state']}"
    for key in ("exit_record", "outcome"):
        if details[key]:
            told = "  ".join(f"{name}={value}" for name, value in details[key].items() if value is not None)
            yield key.replace("_", " "), told
    for number, file in enumerate(details["files"]):
        yield "" if number else "files", f"{file['bytes']:>10}  {file['name']}"
