"""The process that stands over a local job, as a node's daemon does over a batch job. Standard library only.

Started as a file of its own by `hpcjob.schedulers.local`: it detaches from the terminal, starts the job's script in a
new session, writes down which processes these are, keeps the walltime, and when the script ends, ends whatever it left.

The processes of a job are those with its mark in their environment, the members of their sessions, and all descendants,
but for another job's. An orphan becomes the supervisor's child (PR_SET_CHILD_SUBREAPER), so that a daemon that has shed
both environment and session is found too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn

MARK = "HPCJOB_LOCAL_MARK"
_MARK_IS = f"{MARK}=".encode()
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2), Linux 3.4
_KILL_WAIT_S = 2.0
_POLL_S = 0.05


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
        self.ended, self.state, self.code, self.reason = _now(), state, code, reason
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
    _signal(found, signal.SIGTERM)
    left = _wait_for_none(mark, roots, kill_wait_s) if found else found
    deadline = time.monotonic() + 5
    while left and time.monotonic() < deadline:
        _signal(left, signal.SIGKILL)
        left = _wait_for_none(mark, roots, 0.2)
    return len(found)


def _wait_for_none(mark: str, roots: set[int], limit_s: float) -> set[int]:
    deadline = time.monotonic() + limit_s
    while (left := processes_of(mark, roots)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def main(argv: list[str]) -> None:
    """Detach, start the script, print its pid, and stay until the job has ended. The environment holds the job's mark.

    Args:
        argv: job directory, script, walltime in seconds, seconds from TERM to KILL; then what has to end first, each as
            JSON ``[condition, id, job directory]``.
    """
    earlier = [Earlier(*json.loads(text)) for text in argv[4:]]
    jobdir, script, mark = Path(argv[0]), argv[1], os.environ[MARK]
    walltime_s, kill_wait_s = float(argv[2]), float(argv[3])
    if os.fork():
        os._exit(0)  # whoever started us has no child left; we belong to init
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    watched = {signal.SIGCHLD, signal.SIGTERM}
    # Blocked, they wait for sigtimedwait; ignored, they would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(opener)
        _become_script(jobdir, script, gate, before)
    job = LocalJob(
        pid=pid,
        start=start_ticks(pid) or 0,
        supervisor=os.getpid(),
        supervisor_start=start_ticks(os.getpid()) or 0,
        mark=mark,
        host=socket.gethostname(),
        boot=boot_id(),
        namespace=pid_namespace(),
        started=_now(),
        waits_for=", ".join(f"job {one.id} (after{one.condition})" for one in earlier) or None,
    )
    job.write(jobdir)
    print(pid, flush=True)
    _silence(jobdir, pid)
    if earlier:
        if (reason := _wait_for_all(earlier, watched)) is not None:
            os.close(opener)  # the script's process ends without having been it
            os.waitpid(pid, 0)
            job.waits_for = None
            job.end(jobdir, "CANCELLED", None, reason)
            return
        job.waits_for, job.started = None, _now()
        job.write(jobdir)
    os.write(opener, b"\n")
    os.close(opener)
    _watch(job, jobdir, watched, walltime_s, kill_wait_s)


@dataclass
class Earlier:
    """A job of this machine that has to end first: ``ok`` with code 0, ``notok`` with another, ``any`` however."""

    condition: str
    id: str
    jobdir: str

    def refusal(self) -> str | None:
        """Say why the condition cannot come true any more; empty while it may, None once it has."""
        code = self._code()
        if code is None:
            return ""
        good = {"ok": code == 0, "notok": code != 0}.get(self.condition, True)
        told = f"ended with code {code}" if code >= 0 else "ended without a code"
        return None if good else f"after{self.condition}:{self.id} did not come true: it {told}"

    def _code(self) -> int | None:
        """Return its exit code, -1 if it ended without one, None while it has not ended."""
        note, record = (self._read(f"{self.id}_{kind}.json") for kind in ("local", "exit"))
        if (
            note is not None
            and note.get("state") is None
            and start_ticks(_number(note, "supervisor")) == note.get("supervisor_start")
        ):
            return None
        found = record or note or {}
        return _number(found, "code", -1)

    def _read(self, name: str) -> dict[str, object] | None:
        try:
            found = json.loads((Path(self.jobdir) / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None


def _number(fields: dict[str, object], key: str, default: int = 0) -> int:
    value = fields.get(key)
    return value if isinstance(value, int) else default


def _wait_for_all(earlier: list[Earlier], watched: set[signal.Signals]) -> str | None:
    """Wait until all conditions are true; return None then, and else why the job will not start."""
    left = list(earlier)
    while True:
        refusals = [one.refusal() for one in left]
        said = next((refusal for refusal in refusals if refusal), None)
        if said is not None:
            return said
        left = [one for one, refusal in zip(left, refusals, strict=True) if refusal is not None]
        if not left:
            return None
        got = signal.sigtimedwait(watched, 0.5)
        if got is not None and got.si_signo == signal.SIGTERM:
            return "cancelled while it waited"


def _become_script(jobdir: Path, script: str, gate: int, mask: set[signal.Signals] | set[int]) -> NoReturn:
    """In the new child: wait until it is written down, then become the script."""
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
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


def _watch(job: LocalJob, jobdir: Path, watched: set[signal.Signals], walltime_s: float, kill_wait_s: float) -> None:
    """Wait for the script; ask it to end when told to or at the walltime, and insist after ``kill_wait_s``."""
    reason = None
    deadline = time.monotonic() + walltime_s
    while (status := _reaped(job.pid)) is None:
        got = signal.sigtimedwait(watched, max(0.0, min(deadline - time.monotonic(), 3600.0)))
        if reason is None and got is not None and got.si_signo == signal.SIGTERM:
            reason = "CANCELLED"
        elif time.monotonic() >= deadline:
            if reason is not None:
                _signal({job.pid}, signal.SIGKILL)
                deadline = time.monotonic() + 3600
                continue
            reason = "TIMEOUT"
            with contextlib.suppress(OSError):  # a full disk must not keep the job running
                os.write(1, f"hpcjob: the walltime of {walltime_s:g} s is over\n".encode())
        else:
            continue
        _signal({job.pid}, signal.SIGTERM)
        deadline = time.monotonic() + kill_wait_s
    end_processes(job.mark, {job.pid, os.getpid()})
    code = os.waitstatus_to_exitcode(status)
    name = signal.Signals(-code).name.removeprefix("SIG") if code < 0 else None
    code = 128 - code if code < 0 else code
    record = jobdir / f"{job.pid}_exit.json"
    # On a full disk, or in a folder that is gone, each is tried; who asks later finds that the processes have ended.
    with contextlib.suppress(OSError):
        if not record.exists():
            replace_json(record, {"code": code, "signal": name, "time": _now(), "host": job.host, "step": None})
    with contextlib.suppress(OSError):
        job.end(jobdir, reason or ("FAILED" if code else "COMPLETED"), code, f"killed by {name}" if name else None)


def _reaped(pid: int) -> int | None:
    """Reap the children that have ended, orphans of the job too; return the wait status of ``pid`` if it has."""
    while True:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in (0, pid):
            return status if child else None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


if __name__ == "__main__":
    main(sys.argv[1:])
