"""Processes of this machine, as /proc shows them, and those that belong to a local job.

The processes of a job are those with its mark in their environment, the members of their sessions, and all descendants,
but for another job's. An orphan becomes the supervisor's child (PR_SET_CHILD_SUBREAPER), so that a daemon that has shed
both environment and session is found too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "HPCJOB_LOCAL_MARK"
_MARK_IS = f"{MARK}=".encode()
_KILL_WAIT_S = 2.0
_GIVE_UP_S = 5.0
_POLL_S = 0.05


def boot_id() -> str:
    """Return what changes with each start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def pid_namespace() -> str:
    """Return what tells this process's pids from those of another container."""
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - it points at no path


def start_ticks(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None: it is gone, or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command's name: state, parent, group, session, ... (proc(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def processes_of(mark: str, roots: set[int]) -> set[int]:
    """Return the live processes of the job with this mark, this one left out.

    Args:
        roots: processes known to be the job's, such as its script.
    """
    table: dict[int, list[str]] = {}
    ours = set(roots)
    others: set[int] = set()
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a thousand names, no paths needed
        if not entry.isdigit() or (fields := _stat(int(entry))) is None or fields[0] == "Z":
            continue
        table[int(entry)] = fields
        found = _mark_of(int(entry))
        if found is not None:
            (ours if found == mark.encode() else others).add(int(entry))
    ours &= table.keys()
    sessions = {table[pid][3] for pid in ours if table[pid][3] == str(pid)} | {str(root) for root in roots}
    ours |= {pid for pid, fields in table.items() if fields[3] in sessions} - others
    children = ours
    while children:
        children = {pid for pid, fields in table.items() if int(fields[1]) in children} - ours - others
        ours |= children
    return ours - {os.getpid()}


def _mark_of(pid: int) -> bytes | None:
    """Return the mark that a process was started with; None: none, or it is gone, or another user's."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    return next((entry[len(_MARK_IS) :] for entry in environment.split(b"\0") if entry.startswith(_MARK_IS)), None)


def end_processes(mark: str, roots: set[int], *, kill_wait_s: float = _KILL_WAIT_S) -> int:
    """End the processes of a job: TERM, then KILL for those that are still there after ``kill_wait_s``.

    Returns:
        How many were found at first. What cannot be killed (stuck in the kernel, another user's) is given up after 5 s.
    """
    found = processes_of(mark, roots)
    send(found, signal.SIGTERM)
    left = _wait_for_none(mark, roots, kill_wait_s) if found else found
    deadline = time.monotonic() + _GIVE_UP_S
    while left and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        left = _wait_for_none(mark, roots, 0.2)
    return len(found)


def _wait_for_none(mark: str, roots: set[int], limit_s: float) -> set[int]:
    deadline = time.monotonic() + limit_s
    while (left := processes_of(mark, roots)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left


def send(pids: set[int], number: signal.Signals) -> None:
    """Send a signal to processes; those that are gone, or another user's, are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
