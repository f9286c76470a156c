"""The elements of an array on this machine, which the array's own script runs one beside the other.

``INDEX/ID_pid`` in the array's folder says which process runs an element and when it started, ``INDEX.code`` with which
code the array saw it end, ``INDEX.cancelled`` that it is not to start, or was asked to end. An element's exit record is
there before the array has seen its end, and does not tell that its walltime was over.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from hpcjob.errors import SchedulerError
from hpcjob.schedulers.base import JobRef, Report
from hpcjob.schedulers.supervisor import processes
from hpcjob.states import State

_OVER = "124"  # timeout(1): the time was over


def array(ref: JobRef) -> JobRef:
    """Return the array of an element."""
    assert ref.array is not None
    return JobRef(ref.array, ref.jobdir.parent, ref.cluster)


def report(ref: JobRef, whole: Report | None) -> Report | None:
    """Return what is known of an element; None leaves it to its exit record.

    Args:
        whole: what is known of its array.
    """
    cancelled, seen = _mark(ref, "cancelled") is not None, _mark(ref, "code")
    started = _process(ref)
    if started is not None and processes.start_ticks(started[0]) == started[1]:
        return Report(State.COMPLETING, reason="asked to end") if cancelled else Report(State.RUNNING)
    if cancelled:
        return Report(State.CANCELLED)
    if seen == _OVER:
        return Report(State.TIMEOUT)
    array_ended = whole is None or whole.state.ended
    has_record = (ref.jobdir / f"{ref.id}_exit.json").exists()
    if whole is not None and whole.state is State.UNKNOWN:  # its processes are of another machine
        return None if has_record else whole
    if has_record:
        return None if seen or array_ended else Report(State.COMPLETING)
    if array_ended:
        if started is None:
            return Report(State.CANCELLED, reason="never started: its array has ended")
        return Report(State.FAILED, reason="its processes are gone, without an exit record")
    if started is None:
        return Report(State.PENDING, reason=None if whole is None or whole.state is State.RUNNING else whole.reason)
    return Report(State.COMPLETING, reason="its last processes are being ended")


def cancel(ref: JobRef, kill_wait_s: float) -> str:
    """End an element, or keep it from starting.

    Raises:
        SchedulerError: its array's folder cannot be written.
    """
    started = _process(ref)
    if (ref.jobdir / f"{ref.id}_exit.json").exists():
        return "had ended before"
    try:
        (ref.jobdir.parent / f"{ref.index}.cancelled").touch()
    except OSError as error:
        raise SchedulerError(f"{error.filename}: {error.strerror}", hint="fix the job directory") from None
    if started is None:
        return "will not start"
    _signal(started, signal.SIGTERM)
    deadline = time.monotonic() + kill_wait_s
    while processes.start_ticks(started[0]) == started[1] and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal(started, signal.SIGKILL)
    return "cancelled"


def _signal(started: tuple[int, int], number: signal.Signals) -> None:
    if processes.start_ticks(started[0]) == started[1]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(started[0], number)


def _mark(ref: JobRef, word: str) -> str | None:
    """Return what the mark says, which may be nothing; None: there is none."""
    try:
        return (ref.jobdir.parent / f"{ref.index}.{word}").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def _process(ref: JobRef) -> tuple[int, int] | None:
    """Return pid and start of an element's script; None: it has not started, or the note is damaged."""
    try:
        pid, start = (ref.jobdir / f"{ref.id}_pid").read_text(encoding="ascii", errors="replace").split()
        return (int(pid), int(start)) if 1 < int(pid) <= 2**22 else None
    except (OSError, ValueError):
        return None
