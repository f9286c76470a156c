"""What ``hpcjob profile check`` prints and writes."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcjob import exitcodes
from hpcjob.cli.files import write_new
from hpcjob.cli.jobs import has_colours
from hpcjob.cli.table import print_table
from hpcjob.errors import InputError
from hpcjob.home import expanded
from hpcjob.loading.profiles import profile_names, read_profile
from hpcjob.loading.settings import load_settings, usual_account, usual_profile
from hpcjob.profile_check.look import check
from hpcjob.profile_check.probe import Probe
from hpcjob.profile_check.write import profile_text, without_peak
from hpcjob.resources import PROFILES, config_dir, shipped
from neoxlite.common.paths import exists
from neoxlite.common.printable import tell

if TYPE_CHECKING:
    from hpcjob.profile_check.rows import Row

DIFFERS = exitcodes.FINDINGS_FIRST
NOT_SEEN = exitcodes.FINDINGS_FIRST + 1
_STYLES: dict[str, dict[str, Any]] = {
    "differs": {"fg": "red"},
    "unknown": {"fg": "yellow"},
    "same": {"fg": "green"},
    "note": {"dim": True},
}


def run(name: str | None, write: str | None, *, force: bool, timeout_s: float, as_json: bool) -> int:
    """Check the profile, print the rows, write a profile if asked; return the exit code."""
    settings = load_settings()
    chosen = name or usual_profile(settings)
    if chosen is None:
        raise InputError("no profile given", hint=f"give --profile: {', '.join(profile_names())}")
    notes: list[str] = []
    profile, source = read_profile(chosen, notes=notes)
    for note in notes:
        tell(f"note: {note}")
    target = _target(write, profile.name) if write is not None else None
    if target is not None:
        _check_target(target, source.path, force)
    account, _ = usual_account(settings, profile.names)
    rows, seen = check(profile, account, Probe(timeout_s))
    if as_json:
        print(json.dumps({"profile": profile.name, "rows": [asdict(row) for row in rows]}, ensure_ascii=False))
    else:
        _print(rows)
    if target is not None:
        is_shipped = source.path.parent == shipped(PROFILES)
        extends = source.path.stem if is_shipped else str(source.path.resolve())
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--write: {error.filename}: {error.strerror}", hint="give another file") from None
        text = profile_text(profile, extends, rows, seen)
        write_new(target, text, force, option="--write", mode=0o644)
        if unsaid := without_peak(text):
            tell(
                f"note: {target} has no peak_tflops for the GPUs of {', '.join(unsaid)}: no command reported "
                "a model that the profile knows; write gpu, gpu_memory_gib and peak_tflops into their `node`"
            )
        if seen.queues is None and profile.scheduler.type != "local":
            tell("note: the scheduler reported no queues: the profile has only those that it extends")
    verdicts = {row.verdict for row in rows}
    return DIFFERS if "differs" in verdicts else NOT_SEEN if "unknown" in verdicts else exitcodes.OK


def _target(write: str, name: str) -> Path:
    return expanded(write) if write else config_dir() / PROFILES / f"{name}.yml"


def _check_target(target: Path, checked: Path, force: bool) -> None:
    """Refuse a file before anything is asked. Raises InputError."""
    if exists(target) and target.samefile(checked):
        raise InputError(
            f"--write: {target} is the profile that is checked, and the new one extends it", hint="give another file"
        )
    if exists(target) and not force:
        raise InputError(f"--write: {target} exists", hint="give another file, or --force to replace it")


def _print(rows: list[Row]) -> None:
    """Print what differs first, then what is not known, what is the same, and notes."""
    order = ["differs", "unknown", "same", "note"]
    table = [
        {
            "": row.verdict,
            "what": row.what,
            "profile says": row.profile,
            "here is": row.here,
            "what to do": row.todo or None,
        }
        for row in sorted(rows, key=lambda row: order.index(row.verdict))
    ]

    def paint(column: str, cell: str, _: int) -> str:
        return click.style(cell, **_STYLES.get(cell.strip(), {})) if column == "" else cell

    print_table(
        table, fold=("what", "profile says", "here is", "what to do"), paint=paint if has_colours(sys.stdout) else None
    )
    count = sum(row.verdict == "differs" for row in rows)
    unseen = sum(row.verdict == "unknown" for row in rows)
    words = "nothing differs" if not count else "1 difference" if count == 1 else f"{count} differences"
    print(f"{words}{f', {unseen} could not be checked' if unseen else ''}")
