"""Submissions and polls while three of ten scheduler commands fail, and what must be true of them at each moment."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcjob.errors import SchedulerError
from hpcjob.plan import Plan
from hpcjob.schedulers.base import UnclearSubmitError
from hpcjob.states import State
from hpcjob.tracking.exit_record import read_exit_record
from hpcjob.tracking.index import read_index
from hpcjob.tracking.records import Record
from hpcjob.tracking.submission import prepare, submit
from hpcjob.tracking.watch import refresh

KILLED = 137
CODES = (0, 3, 85, KILLED)
_ID = "${SLURM_JOB_ID:-${PBS_JOBID:-${PJM_JOBID:-${JOB_ID:?}}}}"


def script_ending(code: int, directives: str) -> Callable[[str], str]:
    """Return what renders a script that ends with ``code`` when `let_end` says so; killed, it leaves no exit record."""

    def render(jobdir: str) -> str:
        record = f'{{"code": {code}, "time": "2026-11-29T12:00:00+09:00"}}'
        end = (
            "kill -9 $$"
            if code == KILLED
            else f"echo {shlex.quote(record)} >x.tmp; mv x.tmp $id'_exit.json'; exit {code}"
        )
        lines = ["#!/bin/bash", directives.replace("JOBDIR", jobdir), f"cd {shlex.quote(jobdir)}", f"id={_ID}"]
        return "\n".join([*lines, "echo >>ran", "mkfifo go", 'touch "${id}_job.out"', "read -r <go", end]) + "\n"

    return render


@dataclass
class Submissions:
    """What came of a number of submissions.

    Attributes:
        accepted: recorded jobs, with the code that each will end with.
        refused: job directories of those that were told not to have been submitted.
        unclear: job directories of those of which nobody could say.
        over: jobs that the scheduler itself was seen to have ended.
    """

    accepted: dict[Record, int] = field(default_factory=dict)
    refused: list[Path] = field(default_factory=list)
    unclear: list[Path] = field(default_factory=list)
    over: set[Record] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{len(self.accepted)} accepted, {len(self.unclear)} unclear, {len(self.refused)} refused"


def submit_many(plan: Plan, count: int, directives: str, *, sleep: Callable[[float], None]) -> Submissions:
    """Submit ``count`` jobs, each once."""
    came = Submissions()
    for number in range(count):
        code = CODES[number % len(CODES)]
        prepared = prepare(plan, script_ending(code, directives))
        try:
            came.accepted[submit(prepared, sleep=sleep)] = code
        except UnclearSubmitError:
            came.unclear.append(prepared.submission.jobdir)
        except SchedulerError:
            came.refused.append(prepared.submission.jobdir)
    return came


def let_end(jobdir: Path) -> bool:
    """Let the script of a job end; return whether it is running yet."""
    try:
        handle = os.open(jobdir / "go", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # it has not begun to wait
        return False
    os.write(handle, b"\n")
    os.close(handle)
    return True


def check_submissions(came: Submissions, scripts: dict[str, str]) -> None:
    """No job is lost, doubled, or taken for another.

    Args:
        scripts: the scheduler's id of each job that it really has -> text of its script.
    """
    for record in came.accepted:
        assert str(record.jobdir) in scripts[record.id], "recorded under the id of another job"
    for jobdir in (*(record.jobdir for record in came.accepted), *came.unclear, *came.refused):
        jobs = [job_id for job_id, text in scripts.items() if str(jobdir) in text]
        assert len(jobs) <= 1, "submitted twice"
        assert not jobs or jobdir not in came.refused, "told to be refused, and yet submitted"
    assert all(jobdir.is_dir() for jobdir in came.unclear), "its job may run"
    assert not any(jobdir.exists() for jobdir in came.refused)
    assert {record.id for record in read_index().records} == {record.id for record in came.accepted}


def expected(code: int) -> tuple[State, int | None]:
    """Return state and exit code of a script that ended with ``code``."""
    return (State.TIMEOUT if code == 85 else State.FAILED if code else State.COMPLETED), code


def poll(came: Submissions, is_over: Callable[[Record], bool]) -> dict[Record, Any]:
    """Ask once about all jobs; an end that is told is true, and has come."""
    statuses = refresh(list(came.accepted), read_index())
    for record, status in statuses.items():
        if status.state.ended:
            state, code = expected(came.accepted[record])
            # The code of a script that was killed comes from the history, which may be silent now.
            assert status.state is state, status
            assert status.exit_code in ((code, None) if code == KILLED else (code,)), status
            if record not in came.over:
                assert read_exit_record(record.jobdir, record.id) is not None or is_over(record), status
                came.over.add(record)
    return statuses


def poll_while_they_end(came: Submissions, polls: int, is_over: Callable[[Record], bool]) -> None:
    """Poll while the jobs end one after the other, the last a while before the last poll."""
    waiting = list(came.accepted)
    for number in range(polls):
        due = number >= polls * 0.8 * (1 - len(waiting) / len(came.accepted))
        if waiting and due and let_end(waiting[0].jobdir):
            del waiting[0]
        poll(came, is_over)


def end_all(came: Submissions, limit_s: float) -> None:
    """Without failures now: every job ends, is told to have ended as it did, and has run once."""
    deadline = time.monotonic() + limit_s
    waiting = list(came.accepted)
    while alive := [
        (record, status) for record, status in poll(came, lambda _: True).items() if not status.state.ended
    ]:
        assert time.monotonic() < deadline, alive
        waiting = [record for record in waiting if not let_end(record.jobdir)]
        time.sleep(0.2)
    told = {record: (status.state, status.exit_code) for record, status in poll(came, lambda _: True).items()}
    assert told == {record: expected(code) for record, code in came.accepted.items()}
    assert all((record.jobdir / "ran").read_text() == "\n" for record in came.accepted), "run once each"
