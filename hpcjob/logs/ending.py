"""How a job ended by its own files and its scheduler, which goes before what the lines of its log look like.

A trainer that was asked to stop saves and ends with a code of its own; the launchers around it take that for a failure
and print one, so that the log of a clean stop reads like that of a crash.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hpcjob import exitcodes
from hpcjob.logs import topics
from hpcjob.logs.suspicion import Suspicion
from hpcjob.states import State
from hpcjob.tracking.exit_record import ExitRecord, Outcome, read_exit_record, read_outcome

_RECORD = "_exit.json"
_OUTCOME = "outcome.json"
_CLEAN = {"saved_for_walltime": exitcodes.SAVED_FOR_WALLTIME, "stopped": exitcodes.STOPPED_ON_REQUEST}
_FROM_OUTSIDE = ("TERM", "INT", "HUP", "QUIT")
_AGAIN = "Submit it again; a training run goes on from its last checkpoint."
_BY_STATE = {
    State.CANCELLED: Suspicion(topics.ENDED, "the job was cancelled", f"Nothing failed by itself. {_AGAIN}"),
    State.TIMEOUT: Suspicion(
        topics.LIMIT,
        "the walltime was over, says the scheduler",
        "Resume from the last checkpoint, or ask for a longer walltime.",
    ),
    State.PREEMPTED: Suspicion(topics.ENDED, "the job was preempted, says the scheduler", _AGAIN),
    State.NODE_FAIL: Suspicion(
        topics.ENDED, "a node failed, says the scheduler", "Submit the job again and exclude the node."
    ),
    State.OUT_OF_MEMORY: Suspicion(
        topics.MEMORY,
        "host memory was used up, says the scheduler",
        "Ask for more memory, or use fewer data-loader workers or less CPU offload.",
    ),
}


class Ending(msgspec.Struct, frozen=True):
    """What is known without the log.

    Attributes:
        directory: where ``outcome.json`` lies.
        record_path: the exit record's file.
        record: how the script ended; None while it runs, or if it was killed.
        outcome: what the trainer said last; None of other programs.
        state: the job's state by its scheduler.
    """

    directory: Path = Path()
    record_path: Path = Path()
    record: ExitRecord | None = None
    outcome: Outcome | None = None
    state: State | None = None

    @property
    def code(self) -> int | None:
        """The exit code of the job's script."""
        return None if self.record is None else self.record.code

    @property
    def saved(self) -> int | None:
        """The iteration whose checkpoint a clean stop has left."""
        return self.outcome.iteration if self.outcome is not None and self.outcome.checkpoint is not None else None

    def clean_stop(self) -> Suspicion | None:
        """Return what is to be said of a job that ended as it was asked to; None of any other."""
        if self.record is None or (self.record.signal is not None and self.record.code not in _CLEAN.values()):
            code = None if self.outcome is None else _CLEAN.get(self.outcome.outcome)
        else:
            code = self.record.code if self.record.code in _CLEAN.values() else None
        if code is None:
            return None
        if code == exitcodes.SAVED_FOR_WALLTIME:
            fix = f"{_AGAIN} A longer walltime needs fewer jobs."
            return Suspicion(topics.LIMIT, f"stopped before the walltime was over{self._where()}", fix)
        return Suspicion(topics.ENDED, f"stopped on request{self._where()}", f"Nothing failed. {_AGAIN}")

    def from_outside(self) -> Suspicion | None:
        """Return what ended the job from outside, by its scheduler or by the signal that its script had."""
        if self.code == exitcodes.OK:
            return None
        if self.state in _BY_STATE:
            return _BY_STATE[self.state]
        if self.record is not None and self.record.signal in _FROM_OUTSIDE:
            cause = f"ended from outside by signal {self.record.signal}: cancelled, or stopped by the scheduler"
            return Suspicion(topics.ENDED, cause, f"Nothing in the log failed by itself. {_AGAIN}")
        return None

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
        if self.state is not None and self.state.ended:
            said.append(("scheduler", f"state {self.state}"))
        return said

    def _where(self) -> str:
        if self.outcome is None:
            return ""
        if self.saved is None:
            return f" at iteration {self.outcome.iteration}, without a checkpoint"
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
