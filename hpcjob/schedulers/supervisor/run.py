"""The supervisor's life: detach, start the script, keep the walltime, and end what the script leaves behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import NoReturn

from hpcjob.schedulers.supervisor.earlier import Earlier, wait_for_all
from hpcjob.schedulers.supervisor.note import LocalJob, now, replace_json
from hpcjob.schedulers.supervisor.processes import MARK, boot_id, end_processes, pid_namespace, send, start_ticks

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2), Linux 3.4
_LONG_S = 3600.0
_WATCHED = (signal.SIGCHLD, signal.SIGTERM)
_OF_TERMINAL = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def main(argv: list[str]) -> None:
    """Detach, start the script, print its pid, and stay until the job has ended. The environment holds the job's mark.

    Args:
        argv: job directory, script, walltime in seconds, seconds from TERM to KILL; then what has to end first, each as
            JSON ``[condition, id, job directory]``.
    """
    earlier = [Earlier(*json.loads(text)) for text in argv[4:]]
    jobdir, script = Path(argv[0]), argv[1]
    walltime_s, kill_wait_s = float(argv[2]), float(argv[3])
    before = _detach()
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(opener)
        _become_script(jobdir, script, gate, before)
    job = _write_down(pid, jobdir, earlier)
    with contextlib.suppress(OSError):  # whoever submits may have been killed: the job is found by what is written down
        os.write(1, b"%d\n" % pid)
    _silence(jobdir, pid)
    if earlier:
        refusal = wait_for_all(earlier, _WATCHED)
        job.waits_for = None
        if refusal is not None:
            os.close(opener)  # the script's process ends without having been it
            os.waitpid(pid, 0)
            job.end(jobdir, "CANCELLED", None, refusal)
            return
        job.started = now()
        job.write(jobdir)
    os.write(opener, b"\n")
    os.close(opener)
    status, reason = _watch(pid, walltime_s, kill_wait_s)
    end_processes(job.mark, {pid, os.getpid()})
    _write_end(job, jobdir, status, reason)


def _detach() -> set[signal.Signals] | set[int]:
    """Leave whoever started us, adopt orphans, and wait for signals; return the mask of signals before."""
    if os.fork():
        os._exit(0)  # whoever started us has no child left; we belong to init
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Blocked, they wait for sigtimedwait; ignored, they would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    for number in _OF_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    return before


def _write_down(pid: int, jobdir: Path, earlier: list[Earlier]) -> LocalJob:
    job = LocalJob(
        pid=pid,
        start=start_ticks(pid) or 0,
        supervisor=os.getpid(),
        supervisor_start=start_ticks(os.getpid()) or 0,
        mark=os.environ[MARK],
        host=socket.gethostname(),
        boot=boot_id(),
        namespace=pid_namespace(),
        started=now(),
        waits_for=", ".join(f"job {one.id} (after{one.condition})" for one in earlier) or None,
    )
    job.write(jobdir)
    return job


def _become_script(jobdir: Path, script: str, gate: int, mask: set[signal.Signals] | set[int]) -> NoReturn:
    """In the new child: wait until it is written down, then become the script."""
    os.setsid()
    for number in (*_OF_TERMINAL, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _silence(jobdir, os.getpid())  # who submits waits for the end of its pipe
    if not os.read(gate, 1):
        os._exit(1)  # the supervisor died before it wrote us down, or what the job waits for did not come true
    os.environ["HPCJOB_JOB_ID"] = str(os.getpid())
    try:
        os.execvp("bash", ["bash", script])  # noqa: S606 - an argv, no shell in between
    except OSError as error:
        os.write(2, f"hpcjob: bash: {error.strerror}\n".encode())
        os._exit(127)


def _silence(jobdir: Path, pid: int) -> None:
    """Point stdin at nothing, stdout and stderr at the scheduler's output file of this job."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(jobdir / f"{pid}_sched.out", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(nothing)
    os.close(out)


def _watch(pid: int, walltime_s: float, kill_wait_s: float) -> tuple[int, str | None]:
    """Wait for the script; ask it to end when told to or at the walltime, and insist after ``kill_wait_s``.

    Returns:
        Its wait status, and why it was asked to end: CANCELLED, TIMEOUT or None.
    """
    reason = None
    deadline = time.monotonic() + walltime_s
    while (status := _reaped(pid)) is None:
        got = signal.sigtimedwait(_WATCHED, max(0.0, min(deadline - time.monotonic(), _LONG_S)))
        if reason is None and got is not None and got.si_signo == signal.SIGTERM:
            reason = "CANCELLED"
        elif time.monotonic() >= deadline:
            if reason is not None:
                send({pid}, signal.SIGKILL)
                deadline = time.monotonic() + _LONG_S
                continue
            reason = "TIMEOUT"
            with contextlib.suppress(OSError):  # a full disk must not keep the job running
                os.write(1, f"hpcjob: the walltime of {walltime_s:g} s is over\n".encode())
        else:
            continue
        send({pid}, signal.SIGTERM)
        deadline = time.monotonic() + kill_wait_s
    return status, reason


def _write_end(job: LocalJob, jobdir: Path, status: int, reason: str | None) -> None:
    """Leave the exit record that the script could not, and note how the job ended.

    On a full disk, or in a folder that is gone, each is tried; who asks later finds that the processes have ended.
    """
    code = os.waitstatus_to_exitcode(status)
    name = signal.Signals(-code).name.removeprefix("SIG") if code < 0 else None
    code = 128 - code if code < 0 else code
    record = jobdir / f"{job.pid}_exit.json"
    with contextlib.suppress(OSError):
        if not record.exists():
            replace_json(record, {"code": code, "signal": name, "time": now(), "host": job.host, "step": None})
    with contextlib.suppress(OSError):
        job.end(jobdir, reason or ("FAILED" if code else "COMPLETED"), code, f"killed by {name}" if name else None)


def _reaped(pid: int) -> int | None:
    """Reap the children that have ended, orphans of the job too; return the wait status of ``pid`` if it has."""
    while True:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in (0, pid):
            return status if child else None
