"""What a job's script leaves behind: its exit record, and the outcome that the trainer wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from hpcjob import exitcodes
from hpcjob.regular import read_regular
from hpcjob.states import State

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_MAX_BYTES = 100_000
_MEANINGS = {
    exitcodes.SAVED_FOR_WALLTIME: "saved for the walltime",
    exitcodes.STOPPED_ON_REQUEST: "stopped on request",
    exitcodes.CHECK_FAILED: "a check before the launch failed",
}
ENDS_BY_REQUEST = {State.TIMEOUT: "ended at its walltime", State.PREEMPTED: "preempted"}
"""States of jobs that their scheduler ended by a request to stop, of which the trainer knows no more than that."""


class ExitRecord(msgspec.Struct, frozen=True):
    """How the script ended, written by its EXIT trap as ``ID_exit.json``.

    Attributes:
        code: exit code, 0 to 255.
        time: ISO 8601 with zone.
        signal: name of the signal that ended it, without SIG.
        host: node on which the script ran.
        step: step that was running.
    """

    code: Annotated[int, Meta(ge=0, le=255)]
    time: str
    signal: str | None = None
    host: str = ""
    step: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What the trainer says of its run, written as ``outcome.json``.

    Attributes:
        iteration: the last one done.
        checkpoint: the last one saved.
        message: what went wrong.
    """

    outcome: Literal["completed", "saved_for_walltime", "stopped", "failed"]
    iteration: int = 0
    checkpoint: str | None = None
    message: str | None = None


def read_exit_record(jobdir: Path, job_id: str) -> ExitRecord | None:
    """Return the exit record of a job; None if there is none, or it cannot be read as one."""
    return _read(f"{jobdir}/{job_id}_exit.json", ExitRecord)


def read_outcome(jobdir: Path) -> Outcome | None:
    """Return the trainer's outcome; None if there is none, or it cannot be read as one."""
    return _read(f"{jobdir}/outcome.json", Outcome)


def _read(path: str, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(read_regular(path, _MAX_BYTES), type=kind)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


def meaning(code: int, state: State) -> str | None:
    """Return what a job's exit code says, if it is one of ours; of a stop that its scheduler asked for, that."""
    if code == exitcodes.STOPPED_ON_REQUEST:
        return ENDS_BY_REQUEST.get(state, _MEANINGS[code])
    return _MEANINGS.get(code)
