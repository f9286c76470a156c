"""Who writes to a folder: a process, known so that its death can be told from its life. Imports no torch."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

_TEXT = re.compile(r"(?P<host>[A-Za-z0-9.-]+)_(?P<boot>[0-9a-f]*)_(?P<pid>[0-9]{1,10})_(?P<started>[0-9]{1,20})")


@dataclass(frozen=True)
class Owner:
    """A process of a host; a number that the kernel gives again, or a reboot, makes another owner."""

    host: str
    boot: str
    """First part of the boot's id, hexadecimal; empty where the kernel does not say."""
    pid: int
    started: int
    """Start of the process in clock ticks since boot (proc(5), field 22 of stat)."""

    @classmethod
    def this(cls) -> Owner:
        """Return this process."""
        pid = os.getpid()
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()) or "localhost"
        return cls(host, _boot(), pid, _started(pid) or 0)

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Return the owner that ``str`` wrote, or None."""
        match = _TEXT.fullmatch(text)
        return cls(match["host"], match["boot"], int(match["pid"]), int(match["started"])) if match else None

    def __str__(self) -> str:
        return f"{self.host}_{self.boot}_{self.pid}_{self.started}"

    @property
    def is_alive(self) -> bool | None:
        """Whether the process runs; None if it is of another host, which cannot be asked."""
        here = Owner.this()
        if self.host != here.host:
            return None
        return self.boot == here.boot and _started(self.pid) == self.started


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None if there is none, or only its parent's record of it."""
    try:
        # The name stands in parentheses and may hold anything, parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
