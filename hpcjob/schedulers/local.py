"""This machine as a cluster of one node: a supervisor starts the script, any later process tracks and cancels it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hpcjob.arrays import parse_spec
from hpcjob.errors import InputError, SchedulerError
from hpcjob.plan import Plan
from hpcjob.regular import read_regular
from hpcjob.schedulers import local_elements
from hpcjob.schedulers.base import (
    Answer,
    JobRef,
    Mark,
    Report,
    Scheduler,
    ShellRequest,
    Submission,
    Submitted,
    UnclearSubmitError,
    tag_of,
)
from hpcjob.schedulers.commands import clean_environment
from hpcjob.schedulers.supervisor import PROGRAM, processes
from hpcjob.schedulers.supervisor.note import LocalJob
from hpcjob.states import State

_START_TIMEOUT_S = 30.0
_MAX_BYTES = 100_000
_MAX_PID = 2**22  # PID_MAX_LIMIT of Linux on 64 bits


class LocalScheduler(Scheduler):
    """Jobs as detached processes of this machine. A job's id is the pid of its script.

    Args:
        kill_wait_s: seconds that a script has from TERM to KILL, as Slurm's ``KillWait``.
    """

    type = "local"
    poll_s = (0.2, 2.0)

    def __init__(self, kill_wait_s: float = 35.0) -> None:
        self._kill_wait_s = kill_wait_s

    def command_line(self, submission: Submission) -> tuple[str, ...]:
        """The script is run by bash, below a supervisor."""
        return "bash", str(submission.script)

    def shell_command(self, request: ShellRequest) -> list[str]:
        """A shell here."""
        return [*request.command, "bash", str(request.shell)]

    def submit(self, submission: Submission) -> Submitted:
        """Start the supervisor and return the id that it prints when the script is written down and may start."""
        plan = submission.plan
        limits = [str(self._walltime_s(plan)), str(self._kill_wait_s)]
        after = [json.dumps([one.condition, one.id, one.jobdir]) for one in plan.after]
        argv = [sys.executable, "-I", "-S", "-X", "utf8", str(PROGRAM), str(submission.jobdir), str(submission.script)]
        try:
            done = subprocess.run(
                [*argv, *limits, *after],
                cwd=submission.submit_dir,
                # Its own mark also where a job starts another one, which then does not end with it.
                env={**clean_environment(os.environ), processes.MARK: submission.tag},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                start_new_session=True,
                timeout=_START_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            raise SchedulerError(
                f"the job's supervisor did not start: {error}", hint="check the load and the limits of this machine"
            ) from None
        except subprocess.TimeoutExpired:  # it has left this process, and may be about to start the job
            raise UnclearSubmitError(f"the job's supervisor did not answer in {_START_TIMEOUT_S:g} s") from None
        except KeyboardInterrupt:
            raise UnclearSubmitError("interrupted before the job's supervisor answered") from None
        pid = done.stdout.decode(errors="replace").strip()
        if not pid.isdigit():
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise SchedulerError(
                f"the job's supervisor did not start: {said[-1] if said else 'it said nothing'}",
                hint="check the free space and the limits (ulimit -a) of this machine",
            )
        return Submitted(pid, self.server())

    def _walltime_s(self, plan: Plan) -> float:
        """Return the time of a job, or of all elements of an array, each of which keeps the walltime and then ends."""
        if plan.array is None:
            return plan.walltime_s
        return (plan.walltime_s + self._kill_wait_s) * len(parse_spec(plan.array.spec))

    def server(self) -> str:
        """Return this machine's name: pids mean something here alone."""
        return socket.gethostname()

    def lookup(self, mark: Mark) -> Submitted | None:
        """See `Scheduler.lookup`."""
        for path in mark.jobdir.glob("*_local.json"):
            if job := read_local_job(mark.jobdir, path.name.removesuffix("_local.json")):
                return Submitted(str(job.pid), job.host)
        return None

    def queue(self, jobs: Sequence[JobRef]) -> Answer:
        """See `Scheduler.queue`."""
        reports = {ref.id: report for ref in jobs if (report := self._told(ref)) is not None}
        return Answer(reports)

    def _told(self, ref: JobRef) -> Report | None:
        return _report(ref) if ref.array is None else local_elements.report(ref, _report(local_elements.array(ref)))

    def history(self, jobs: Sequence[JobRef]) -> Answer:
        """What ``ID_local.json`` says is all there is: the same as `queue`."""
        return self.queue(jobs)

    def cancel(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        """End each job with all its processes, and return when they are gone.

        Raises:
            SchedulerError: a job runs on another machine.
        """
        return {ref.id: self._cancel(ref) for ref in jobs}

    def _cancel(self, ref: JobRef) -> str:
        if ref.array is not None:
            return local_elements.cancel(ref, self._kill_wait_s)
        job = read_local_job(ref.jobdir, ref.id)
        if job is None:
            return self._cancel_without_note(ref)
        if elsewhere := _elsewhere(job):
            raise SchedulerError(f"job {ref.id} {elsewhere}", hint=f"cancel it there: hpcjob cancel {ref.id}")
        if job.state is None and _alive(job.supervisor, job.supervisor_start):
            os.kill(job.supervisor, signal.SIGTERM)
            self._wait_for_supervisor(job)
        known = ((job.pid, job.start), (job.supervisor, job.supervisor_start))
        left = processes.end_processes(job.mark, {pid for pid, start in known if _alive(pid, start)})
        now = read_local_job(ref.jobdir, ref.id) or job
        if now.state is None:  # its supervisor is gone: say in its place how it ended
            with contextlib.suppress(OSError):
                now.end(ref.jobdir, State.CANCELLED.value, None, None)
        if now.state == State.CANCELLED.value:
            return "cancelled, all its processes have ended"
        return f"had ended before ({now.state})" + (f"; {left} processes it left behind were ended" if left else "")

    def _cancel_without_note(self, ref: JobRef) -> str:
        """End a job whose note, or whole folder, somebody removed: its processes bear the name of the folder."""
        if ref.cluster == socket.gethostname() and processes.end_processes(
            tag_of(ref.jobdir), set(), kill_wait_s=self._kill_wait_s
        ):
            return "cancelled, all its processes have ended"
        raise SchedulerError(
            f"job {ref.id}: {_path(ref.jobdir, ref.id)} is gone or damaged",
            hint=f"end its processes by hand: kill {ref.id}",
        )

    def _wait_for_supervisor(self, job: LocalJob) -> None:
        deadline = time.monotonic() + self._kill_wait_s + 15
        while _alive(job.supervisor, job.supervisor_start) and time.monotonic() < deadline:
            time.sleep(0.05)

    def adopt(self, job: JobRef) -> Report | None:
        """Write down which process a script started by hand is.

        Raises:
            InputError: the note of it cannot be written.
        """
        pid = _pid_of(job.id)
        start = processes.start_ticks(pid) if pid > 0 else None
        known = read_local_job(job.jobdir, job.id)
        if start is not None and (known is None or known.start != start):
            note = LocalJob(
                pid=pid,
                start=start,
                supervisor=0,
                supervisor_start=0,
                mark=f"none-{job.id}",
                host=socket.gethostname(),
                boot=processes.boot_id(),
                namespace=processes.pid_namespace(),
                started="",
            )
            try:
                note.write(job.jobdir)
            except OSError as error:
                raise InputError(
                    f"{_path(job.jobdir, job.id)} cannot be written: {error.strerror or error}",
                    hint="give a folder that you can write after the id, or attach from one",
                ) from None
        return super().adopt(job)


def read_local_job(jobdir: Path, job_id: str) -> LocalJob | None:
    """Return what is noted of job ``job_id`` in its job directory; None if nothing is, or it is damaged."""
    try:
        job = msgspec.json.decode(read_regular(_path(jobdir, job_id), _MAX_BYTES), type=LocalJob)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None
    sound = all(0 <= pid <= _MAX_PID for pid in (job.pid, job.supervisor)) and job.pid > 1
    sound = sound and (job.code is None or 0 <= job.code <= 255)
    return job if sound and str(job.pid) == job_id and job.mark else None


def _path(jobdir: Path, job_id: str) -> Path:
    """Several jobs may have been attached from one folder: each has a note of its own."""
    return jobdir / f"{job_id}_local.json"


def _pid_of(job_id: str) -> int:
    """Return the id as a pid, 0 where no job can have it: 1 is the machine's own, and 007 is no name of process 7."""
    return int(job_id) if re.fullmatch("[1-9][0-9]{0,6}", job_id) and 1 < int(job_id) <= _MAX_PID else 0


def _alive(pid: int, start: int) -> bool:
    return pid > 1 and processes.start_ticks(pid) == start


def _elsewhere(job: LocalJob) -> str | None:
    """Say where a job's pids mean something, if not here."""
    if job.host != socket.gethostname():
        return f"was started on {job.host}, this is {socket.gethostname()}"
    if job.boot == processes.boot_id() and job.namespace != processes.pid_namespace():
        return "was started in another container of this machine"
    return None


def _report(ref: JobRef) -> Report | None:
    """Return what this machine knows of a job; None leaves it to the exit record."""
    job = read_local_job(ref.jobdir, ref.id)
    if job is None:
        return _report_without_note(ref)
    if job.state is None:
        if elsewhere := _elsewhere(job):
            return Report(State.UNKNOWN, reason=elsewhere)
        if job.boot != processes.boot_id():
            return Report(State.NODE_FAIL, reason="the machine was rebooted while the job ran")
        if job.waits_for and _alive(job.supervisor, job.supervisor_start):
            return Report(State.PENDING, reason=f"waits for {job.waits_for}")
        if alive := _alive_report(job):
            return alive
        job = read_local_job(ref.jobdir, ref.id) or job  # it may have ended while we looked
    if job.state in State.__members__:
        return Report(State(job.state), job.code, job.reason)
    if (ref.jobdir / f"{ref.id}_exit.json").exists():
        return None
    return Report(State.FAILED, reason="its processes are gone, without an exit record")


def _report_without_note(ref: JobRef) -> Report | None:
    """Return that a job has ended of which nothing is left on the machine that ran it; None: that is not known."""
    if ref.cluster != socket.gethostname() or (ref.jobdir / f"{ref.id}_exit.json").exists():
        return None
    if processes.start_ticks(_pid_of(ref.id)) is not None or processes.processes_of(tag_of(ref.jobdir), set()):
        return None
    lost = _path(ref.jobdir, ref.id).name if ref.jobdir.is_dir() else "its folder"
    return Report(State.FAILED, reason=f"its processes are gone, and so is {lost}")


def _alive_report(job: LocalJob) -> Report | None:
    if _alive(job.pid, job.start):
        return Report(State.RUNNING)
    if _alive(job.supervisor, job.supervisor_start):
        return Report(State.COMPLETING, reason="its last processes are being ended")
    if left := processes.processes_of(job.mark, set()):
        return Report(State.COMPLETING, reason=f"the script is gone, {len(left)} of its processes are left")
    return None
