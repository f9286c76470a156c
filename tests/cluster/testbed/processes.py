"""Processes by identity: a pid with its start time, so that a reused pid is never taken for the old process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


class TestbedError(RuntimeError):
    """The test bed could not do what was asked."""

    __test__ = False


PATIENCE_S = 120.0
"""How long to wait for what must happen: the tests run several clusters beside one another on two cores."""


@dataclass(frozen=True)
class ProcessId:
    """A process of this machine, as seen from the machine's own PID namespace."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Identify a running process; ``ProcessLookupError`` if there is none."""
        ticks = start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid, ticks)

    @property
    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return start_ticks(self.pid) == self.start_ticks

    def kill(self, timeout_s: float = PATIENCE_S) -> None:
        """SIGKILL it and wait until it is gone."""
        if not self.alive:
            return
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not self.alive, timeout_s, f"process {self.pid} did not end")


def start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (proc(5), field 22 of stat); None if it is not running."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def oldest(pids: Iterable[int]) -> int:
    """The process that started first; pids come round again, so that the least one may be a child's."""
    return min(pids, key=lambda pid: (start_ticks(pid) or sys.maxsize, pid))


def pid_namespace(pid: int) -> str | None:
    """Identity of a process's PID namespace, such as ``pid:[4026531836]``; None if it is gone or not ours."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def processes_in(namespaces: set[str]) -> dict[int, str]:
    """Running processes in these PID namespaces: pid on the machine -> command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or pid_namespace(int(entry.name)) not in namespaces:
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if start_ticks(int(entry.name)) is not None:
            found[int(entry.name)] = b" ".join(words).decode(errors="replace").strip()
    return found


def wait_until(condition: Callable[[], bool], timeout_s: float, failure: str, pause_s: float = 0.05) -> None:
    """Poll until ``condition`` holds, else raise ``TestbedError(failure)``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TestbedError(f"{failure} (waited {timeout_s:g} s)")
        time.sleep(pause_s)
