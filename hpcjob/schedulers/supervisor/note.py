"""What is known of a local job, kept in its job directory for any later process."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path


@dataclass
class LocalJob:
    """What is known of a local job, kept as ``ID_local.json`` in its job directory.

    Attributes:
        pid, start: the script's process, and when it started in clock ticks since boot: a pid alone comes round again.
        supervisor, supervisor_start: the same of the process above it.
        mark: value of HPCJOB_LOCAL_MARK in the environment of its processes.
        host, boot, namespace: where these pids mean something.
        started, ended: ISO 8601 in UTC.
        state, code, reason: how it ended; None while it runs.
        waits_for: jobs that have to end first, in words; None once it may start.
    """

    pid: int
    start: int
    supervisor: int
    supervisor_start: int
    mark: str
    host: str
    boot: str
    namespace: str
    started: str
    ended: str | None = None
    state: str | None = None
    code: int | None = None
    reason: str | None = None
    waits_for: str | None = None

    def write(self, jobdir: Path) -> None:
        """Write ``ID_local.json``, whole or not at all. Raises OSError."""
        replace_json(jobdir / f"{self.pid}_local.json", asdict(self))

    def end(self, jobdir: Path, state: str, code: int | None, reason: str | None) -> None:
        """Write down how the job ended. Raises OSError."""
        self.ended, self.state, self.code, self.reason = now(), state, code, reason
        self.write(jobdir)


def replace_json(path: Path, value: object) -> None:
    """Write ``value`` to a temporary file and rename it to ``path``. Raises OSError; then nothing is left."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def now() -> str:
    """Return the time in UTC, ISO 8601 with microseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
