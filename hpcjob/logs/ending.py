"""How a job ended by its own files and its scheduler, which goes before what the lines of its log look like.

A trainer that was asked to stop saves and ends with a code of its own; the launchers around it take that for a failure
and print one, so that the log of a clean stop reads like that of a crash.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpcjob import exitcodes
from hpcjob.logs import topics
from hpcjob.logs.failures import describe_code
from hpcjob.logs.suspicion import Suspicion
from hpcjob.schedulers.reasons import never_starts
from hpcjob.states import State
from hpcjob.tracking.exit_record import ENDS_BY_REQUEST, ExitRecord, Outcome, read_exit_record, read_outcome

if TYPE_CHECKING:
    from hpcjob.tracking.status import Status

_RECORD = "_exit.json"
_OUTCOME = "outcome.json"
_CLEAN = {"saved_for_walltime": exitcodes.SAVED_FOR_WALLTIME, "stopped": exitcodes.STOPPED_ON_REQUEST}
_FROM_OUTSIDE = ("TERM", "INT", "HUP", "QUIT", "ALRM", "PIPE")
_KILLED = re.compile(r"killed by (?:signal )?(?:KILL|9)\b")
_AGAIN = "Submit it again; a training run continues from its last checkpoint, unless a step of the job removes that."
_BY_STATE = {
    State.CANCELLED: Suspicion(topics.ENDED, "the job was cancelled", f"Nothing failed by itself. {_AGAIN}"),
    State.TIMEOUT: Suspicion(
        topics.LIMIT,
        "the scheduler ended the job at its walltime",
        "Resume from the last checkpoint, or ask for a longer walltime.",
    ),
    State.PREEMPTED: Suspicion(topics.ENDED, "the scheduler preempted the job", _AGAIN),
    State.NODE_FAIL: Suspicion(
        topics.ENDED, "the scheduler reports that a node failed", "Submit the job again and exclude the node."
    ),
    State.OUT_OF_MEMORY: Suspicion(
        topics.MEMORY,
        "the scheduler reports that host memory was exhausted",
        "Ask for more memory, or use fewer data-loader workers or less CPU offload.",
    ),
}


_OF_KILL = Suspicion(
    topics.ENDED,
    "the job was killed from outside by signal KILL: by hand, or by its node, where host memory was exhausted",
    f"Look at that node's `dmesg -T | grep -i killed`; if memory was exhausted, ask for more, else: {_AGAIN}",
)


class Ending(msgspec.Struct, frozen=True):
    """What is known without the log.

    Attributes:
        directory: where ``outcome.json`` lies.
        record_path: the exit record's file.
        record: how the script ended; None while it runs, or if it was killed.
        outcome: what the trainer said last; None of other programs.
        status: the job's state by its scheduler, with the reason.
        after: what the job came after, as ``afterok:123``.
        waited_for: why it was last seen waiting, in its scheduler's words.
    """

    directory: Path = Path()
    record_path: Path = Path()
    record: ExitRecord | None = None
    outcome: Outcome | None = None
    status: Status | None = None
    after: tuple[str, ...] = ()
    waited_for: str | None = None

    @property
    def state(self) -> State | None:
        """The job's state by its scheduler."""
        return None if self.status is None else self.status.state

    @property
    def live(self) -> str | None:
        """The state, with its reason, of a job that has not ended."""
        alive = self.status is not None and not self.status.state.ended and self.status.state is not State.UNKNOWN
        return self.status.told if self.status is not None and alive else None

    @property
    def failure(self) -> str | None:
        """How a job ended that has not ended well, in words."""
        if self.code is not None:
            return describe_code(self.code) if self.code else None
        if self.status is None or not self.status.state.ended or self.status.state is State.COMPLETED:
            return None
        code = describe_code(self.status.exit_code) if self.status.exit_code else None
        return ", ".join(filter(None, (f"state {self.status.state}", code, self.status.reason)))

    @property
    def code(self) -> int | None:
        """The exit code of the job's script."""
        return None if self.record is None else self.record.code

    @property
    def saved(self) -> int | None:
        """The iteration whose checkpoint a clean stop has left."""
        return self.outcome.iteration if self.outcome is not None and self.outcome.checkpoint is not None else None

    @property
    def is_told_by_files(self) -> bool:
        """Whether the files tell all. A stop on request does not tell whose: the scheduler's end begins with one."""
        return self.code == exitcodes.OK or self._clean_code() == exitcodes.SAVED_FOR_WALLTIME

    def _clean_code(self) -> int | None:
        """Return the exit code of a job that ended as it was asked to; None of any other."""
        if self.record is not None and (self.record.signal is None or self.record.code in _CLEAN.values()):
            return self.record.code if self.record.code in _CLEAN.values() else None
        code = None if self.outcome is None else _CLEAN.get(self.outcome.outcome)
        if code is None and self.status is not None and self.status.is_clean_stop:
            return self.status.exit_code
        return code

    def clean_stop(self) -> Suspicion | None:
        """Return what is to be said of a job that ended as it was asked to; None of any other."""
        code = self._clean_code()
        if code is None:
            return None
        if self.state in ENDS_BY_REQUEST and code == exitcodes.STOPPED_ON_REQUEST:
            by = _BY_STATE[self.state]
            return msgspec.structs.replace(by, cause=f"{by.cause}{self._where(', ')}")
        if code == exitcodes.SAVED_FOR_WALLTIME:
            fix = f"{_AGAIN} A longer walltime needs fewer jobs."
            return Suspicion(topics.LIMIT, f"stopped before the walltime was over{self._where()}", fix)
        return Suspicion(topics.ENDED, f"stopped on request{self._where()}", f"Nothing failed. {_AGAIN}")

    def from_outside(self) -> Suspicion | None:
        """Return what ended the job from outside, by its scheduler or by the signal that its script had."""
        if self.code == exitcodes.OK:
            return None
        if self.state is State.CANCELLED and self.after and not self._has_started():
            return self._waited()
        if never := self._never_started():
            return never
        if self.state in _BY_STATE:
            return _BY_STATE[self.state]
        if self.record is not None and self.record.signal in _FROM_OUTSIDE:
            cause = f"ended from outside by signal {self.record.signal}: cancelled, or stopped by the scheduler"
            return Suspicion(topics.ENDED, cause, f"Nothing in the log failed by itself. {_AGAIN}")
        reason = self.status.reason if self.status is not None else None
        if (self.record is not None and self.record.signal == "KILL") or _KILLED.search(reason or ""):
            return _OF_KILL
        return None

    def _has_started(self) -> bool:
        return self.record is not None or Path(f"{str(self.record_path).removesuffix(_RECORD)}_job.out").exists()

    def _never_started(self) -> Suspicion | None:
        """Return what is to be said of a job that asks for what it cannot get, whether it waits or was cancelled."""
        if self.state is State.PENDING and self.status is not None:
            reason, what, then = self.status.reason, "the job cannot start", "Cancel it, "
        elif self.state is State.CANCELLED and not self._has_started():
            reason, what, then = self.waited_for, "the job was cancelled; it could never have started", "Next time "
        else:
            return None
        never = never_starts(reason)
        return never and Suspicion(topics.LIMIT, f"{what}: it {never.why} ({reason})", f"{then}{never.todo}.")

    def _waited(self) -> Suspicion:
        """Return what is to be said of a job that was cancelled before it started, while it came after others."""
        told = (self.status.reason if self.status else None) or f"cancelled, and it came after {', '.join(self.after)}"
        named = [one for one in self.after if one in told] or self.after
        ids = [one.partition(":")[2] for one in named]
        look = " and ".join(f"hpcjob explain {one}" for one in ids)
        fix = f"Look at what it came after: {look}. Then submit it again."
        return Suspicion(topics.ENDED, f"the job never started: {told}", fix)

    def witnesses(self) -> list[tuple[str, str]]:
        """Return what says so, as (file, text)."""
        said: list[tuple[str, str]] = []
        if self.outcome is not None:
            saved = f", checkpoint {self.outcome.checkpoint}" if self.outcome.checkpoint else ""
            said.append(
                (str(self.directory / _OUTCOME), f"{self.outcome.outcome}, iteration {self.outcome.iteration}{saved}")
            )
        if self.record is not None:
            by = f", signal {self.record.signal}" if self.record.signal else ""
            said.append((str(self.record_path), f"exit code {self.record.code}{by}, {self.record.time}"))
        if self.state is State.PENDING or (self.state is not None and self.state.ended):
            reason = f", {self.status.reason}" if self.status is not None and self.status.reason else ""
            said.append(("scheduler", f"state {self.state}{reason}"))
        return said

    def _where(self, before: str = " ") -> str:
        if self.outcome is None:
            return ""
        if self.saved is None:
            return f"{before}at iteration {self.outcome.iteration}, without a checkpoint"
        return f", saved iteration {self.saved}"


def read_ending(directory: Path | None, job_id: str | None) -> Ending:
    """Read the files of a job folder; what is missing or damaged tells nothing.

    Args:
        job_id: None takes the exit record that is there, if there is one alone.
    """
    if directory is None:
        return Ending()
    if job_id is None:
        names = [path.name for path in directory.glob(f"*{_RECORD}")] if directory.is_dir() else []
        job_id = names[0].removesuffix(_RECORD) if len(names) == 1 else None
    record = None if job_id is None else read_exit_record(directory, job_id)
    return Ending(directory, directory / f"{job_id}{_RECORD}", record, read_outcome(directory))
