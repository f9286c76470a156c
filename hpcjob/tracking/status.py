"""What is known of a job's state, and from which of three witnesses: the queue, the history, the exit record.

Absent from the queue is not done. The queue comes first: a job that is there again (requeued) has not ended, whatever
its last run left behind. Then the scheduler's history says *why* a job ended, and the exit record with which code.
Without either, or while no query is answered, the state is UNKNOWN, which counts as alive.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from hpcjob import exitcodes
from hpcjob.schedulers.base import Answer, JobRef, Report, Scheduler
from hpcjob.schedulers.reasons import is_held, never_starts
from hpcjob.states import State
from hpcjob.tracking.exit_record import ExitRecord, read_exit_record

Source = Literal["queue", "history", "exit record", "index", "absent", "none"]
_MEANT = {exitcodes.SAVED_FOR_WALLTIME: State.TIMEOUT, exitcodes.STOPPED_ON_REQUEST: State.CANCELLED}
SOURCES: tuple[Source, ...] = get_args(Source)


@dataclass(frozen=True)
class Status:
    """State of a job.

    Attributes:
        exit_code: the job's own exit code, where known.
        reason: why it waits, how it ended, or why nothing is known.
        source: who said so; ``absent``: nobody did, and the job is not in the queue; ``none``: nobody answered.
    """

    state: State
    exit_code: int | None = None
    reason: str | None = None
    source: Source = "none"

    @property
    def told(self) -> str:
        """State and reason, as ``PENDING (Resources)``."""
        return str(self.state) + (f" ({self.reason})" if self.reason else "")

    @property
    def held_up(self) -> str | None:
        """Why a job waits for what does not come by itself, and what to do; None where it does, or does not wait."""
        if self.state is State.PENDING and (never := never_starts(self.reason)):
            return f"{self.told}: it {never.why}, and cannot start like this; cancel it, and {never.todo}"
        if self.state is State.PENDING and is_held(self.reason):
            return f"{self.told}: it is held until hpcjob release"
        return None

    @property
    def without_log(self) -> str | None:
        """What to know of a job that has no log: how it ended, or why it waits; None where one is to be expected."""
        return self.held_up or (None if self.state in (State.RUNNING, State.COMPLETING) else self.told)

    @property
    def is_clean_stop(self) -> bool:
        """Whether it saved and ended as it was asked to: nothing failed, and it goes on where it is submitted again."""
        return self.exit_code is not None and self.state is _MEANT.get(self.exit_code)

    @property
    def job_code(self) -> int:
        """The code with which ``wait`` and ``submit --follow`` exit: the job's, else 0 or 1 by its state."""
        if self.exit_code is not None and (self.exit_code or self.state is State.COMPLETED):
            return self.exit_code
        return exitcodes.OK if self.state is State.COMPLETED else exitcodes.FAILURE


def meant(state: State, code: int | None) -> State:
    """Return the state of an ended job by its own code too: a scheduler calls each code but 0 a failure.

    A run that saved for the walltime ended for the walltime, and one that was asked to end was cancelled.
    """
    return _MEANT.get(code, state) if state is State.FAILED and code is not None else state


def ask(scheduler: Scheduler, jobs: Sequence[JobRef], *, history: bool = True) -> dict[str, Status]:
    """Return the status of ``jobs``, whose ids differ, with one query of the queue and at most one of the history.

    Of an array each element is asked for, in the same queries: its own word is not to be trusted (PBS judges by the
    element that ends last), and the history may have words on its elements alone.

    Args:
        history: whether the cluster keeps one; it is asked only about jobs of which more is to be known.
    """
    parts = {job.id: scheduler.elements(job) for job in jobs}
    told = _ask_each(scheduler, list({part.id: part for each in parts.values() for part in each}.values()), history)
    if len(told) == len(jobs) and not any(job.spec for job in jobs):
        return told
    from hpcjob.tracking.array_status import combined

    return {
        job.id: combined({part.index: told[part.id] for part in parts[job.id]}) if job.spec else told[job.id]
        for job in jobs
    }


def _ask_each(scheduler: Scheduler, jobs: Sequence[JobRef], history: bool) -> dict[str, Status]:
    if not jobs:
        return {}
    queue = scheduler.queue(jobs)
    # After the question, which may take long: a job that it says has ended has left its record by then.
    begun = {folder: _names_in(folder) for folder in {job.jobdir.parent for job in jobs if job.array}}
    records = {
        job.id: read_exit_record(job.jobdir, job.id)
        if not job.array or job.jobdir.name in begun[job.jobdir.parent]
        else None
        for job in jobs
    }
    open_questions = [job for job in jobs if _needs_history(queue, job.id, records[job.id])]
    past = scheduler.history(open_questions) if history else Answer(problem="the cluster keeps no history")
    return {job.id: _decide(job.id, queue, past, records[job.id]) for job in jobs}


def _names_in(folder: Path) -> frozenset[str]:
    """Return what lies in the folder of an array: the folder of an element that has not begun is not there."""
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - ten thousand names, no paths needed
    except OSError:
        return frozenset()


def _needs_history(queue: Answer, job_id: str, record: ExitRecord | None) -> bool:
    report = queue.reports.get(job_id)
    if report is not None:
        return report.state is State.FAILED and report.exit_code is None and record is None
    return queue.problem is not None or record is None or record.code != 0


def _decide(job_id: str, queue: Answer, history: Answer, record: ExitRecord | None) -> Status:
    here, past = queue.reports.get(job_id), history.reports.get(job_id)
    if here is not None:
        if _code_to_come(here, record, past, history):
            return Status(State.COMPLETING, None, "it failed; with which code is not in the history yet", "queue")
        return _told(here, "queue", record, past)
    if past is not None and past.state.ended and not (past.unseen and record is not None):
        return _told(past, "history", record)
    if record is not None:
        state = meant(State.FAILED, record.code) if record.code else State.COMPLETED
        return Status(state, record.code, f"killed by {record.signal}" if record.signal else None, "exit record")
    if past is not None:
        return _told(past, "history", None)
    if queue.problem:
        return Status(State.UNKNOWN, reason=queue.problem)
    return Status(State.UNKNOWN, reason=_absent(history.problem), source="absent")


def _code_to_come(here: Report, record: ExitRecord | None, past: Report | None, history: Answer) -> bool:
    """Whether the queue calls a job failed whose code only the history can tell, and will: it lags behind the queue."""
    if here.state is not State.FAILED or here.exit_code is not None or record is not None:
        return False
    return history.problem is None if past is None else not past.state.ended


def _told(report: Report, source: Source, record: ExitRecord | None, past: Report | None = None) -> Status:
    if not report.state.ended:
        return Status(report.state, None, report.reason, source)
    code = report.exit_code if record is None else record.code
    if code is None and past is not None:
        code = past.exit_code
    # No scheduler's word for a good end is better than a failure that the job's own script has noted.
    state = State.FAILED if report.state is State.COMPLETED and code else report.state
    return Status(meant(state, code), code, report.reason, source)


def _absent(problem: str | None) -> str:
    return "not in the queue, no exit record" + (f"; {problem}" if problem else "")
