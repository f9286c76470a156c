"""How a run ended, for the job script: outcome.json and the exit code. Imports no torch."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from neoxlite.common.files import write_whole
from neoxlite.errors import NeoxliteError
from neoxlite.exitcodes import SAVED_FOR_WALLTIME, STOPPED_ON_REQUEST

COMPLETED = "completed"
WALLTIME = "saved_for_walltime"
STOPPED = "stopped"
FAILED = "failed"

_EXIT_CODES = {COMPLETED: 0, WALLTIME: SAVED_FOR_WALLTIME, STOPPED: STOPPED_ON_REQUEST, FAILED: 1}


@dataclass(frozen=True)
class Outcome:
    """The content of outcome.json."""

    outcome: str
    iteration: int = 0
    checkpoint: str | None = None
    """Folder of the last checkpoint written by this run, or loaded by it if it wrote none."""
    message: str | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of the process."""
        return _EXIT_CODES[self.outcome]

    def write(self, path: Path) -> None:
        """Write outcome.json, whole or not at all."""
        write_whole(path, json.dumps(asdict(self), ensure_ascii=False) + "\n")


class Progress:
    """How far a run has come: what an outcome says if it fails."""

    def __init__(self) -> None:
        self.iteration = 0
        self.checkpoint: str | None = None


@contextlib.contextmanager
def failure_recorded(path: Path | None, progress: Progress) -> Iterator[None]:
    """Write the outcome ``failed`` to ``path`` if the block raises, and let the error pass."""
    try:
        yield
    except BaseException as error:
        record_failure(path, progress, one_line(error))
        raise


def record_failure(path: Path | None, progress: Progress, message: str) -> None:
    """Write the outcome ``failed`` to ``path``, if there is one."""
    write_if_possible(path, Outcome(FAILED, progress.iteration, progress.checkpoint, message))


def write_if_possible(path: Path | None, outcome: Outcome) -> None:
    """Write an outcome to ``path``, if there is one; the run has ended already, and a full disk must not hide how."""
    if path is None:
        return
    try:
        outcome.write(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"WARNING: {path} cannot be written: {error.strerror}", file=sys.stderr, flush=True)


def one_line(error: BaseException) -> str:
    """Return an error as one line: our own message, or the class and first line of another's."""
    if isinstance(error, NeoxliteError):
        return error.message.splitlines()[0]
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
