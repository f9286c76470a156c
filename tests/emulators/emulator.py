"""One emulated batch system for a test: its commands in a folder for PATH, its switches, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, Literal

from tests.emulators.machine import ENTRY, Job, Machine

COMMANDS = {
    "pbs": ("qsub", "qstat", "qdel", "qhold", "qrls", "qselect"),
    "pjm": ("pjsub", "pjstat", "pjdel", "pjhold", "pjrls"),
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "pbs": {"first_id": 101, "server": "pbs1", "history": True},
    "pjm": {"first_id": 1334958, "history": True},
}


class Emulator:
    """A batch system whose jobs run on this machine; `end` ends what is left of them.

    Switches, all off by default:
        full          queued jobs do not start
        exiting_s     seconds between the end of a script and that of its job
        down, hung    the server does not answer, at once or never
        lose_answer   the submit command fails with a time-out although the job is queued
        history       finished jobs can be asked for (on by default)
        site          ``miyabi`` or ``wisteria``: the site's own form of the status command
        banner        words before every reply
        cut           replies of the status command end after so many characters
        needs_group   a submission without a group is refused

    Args:
        folder: an empty folder.
        system: which commands.
    """

    def __init__(self, folder: Path, system: Literal["pbs", "pjm"]) -> None:
        self.bin = folder / "bin"
        self.machine = Machine(folder / system)
        self.machine.folder.mkdir(parents=True)
        self.bin.mkdir()
        self._switches: dict[str, Any] = dict(DEFAULTS[system])
        self.set()
        for name in COMMANDS[system]:
            words = shlex.join([sys.executable, "-E", "-s", "-S", str(ENTRY), system, str(self.machine.folder), name])
            (self.bin / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (self.bin / name).chmod(0o755)

    def set(self, **switches: Any) -> None:
        """Set switches, keeping the others."""
        self._switches.update(switches)
        path = self.machine.folder / "switches.json"
        path.with_suffix(".tmp").write_text(json.dumps(self._switches))
        path.with_suffix(".tmp").replace(path)

    @property
    def jobs(self) -> dict[str, Job]:
        """All jobs that were ever submitted, by their number."""
        return self.machine.snapshot()

    def end(self) -> None:
        """Kill every job."""
        self.set(full=True)
        with self.machine.jobs() as jobs:
            for job in jobs.values():
                if job["state"] == "running":
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(job["pid"], signal.SIGKILL)
                job.update(state="ended", deleted=True)
