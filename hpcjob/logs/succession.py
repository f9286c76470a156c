"""The jobs of one run, one after the other: a job that saved for the walltime, and the one that goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcjob import exitcodes
from hpcjob.regular import read_regular
from hpcjob.states import State
from hpcjob.tracking.exit_record import read_exit_record, read_outcome

if TYPE_CHECKING:
    from hpcjob.tracking.index import Index
    from hpcjob.tracking.records import Record
    from hpcjob.tracking.waits import Waits

_GOES_ON_AFTER = {State.TIMEOUT, State.PREEMPTED, State.NODE_FAIL}
_JOB_FILE_BYTES = 1_000_000


class Run:
    """The job that is followed, and those that go on after it.

    Args:
        waits: tells what a job waits for.

    Attributes:
        on_change: is told the record before and the next one.
    """

    def __init__(self, record: Record, waits: Waits | None = None) -> None:
        self.record = record
        self.waits = waits
        self.on_change: Callable[[Record, Record], None] = lambda before, after: None

    @property
    def directory(self) -> Path:
        """The folder of the job that is followed now."""
        return self.record.jobdir

    @property
    def job_id(self) -> str:
        """Its id."""
        return self.record.job_id

    def ended(self) -> bool:
        """Return whether the run has ended: its job, and no other goes on; else go on with that one."""
        from hpcjob.tracking import job_ended
        from hpcjob.tracking.index import read_index

        if not job_ended(self.record, self.waits):
            return False
        after = successor(self.record, read_index())
        if after is None:
            return True
        before, self.record = self.record, after
        self.on_change(before, after)
        return False


def successor(record: Record, index: Index) -> Record | None:
    """Return the job that goes on with the run of an ended one; None if the records name none.

    That is one whose job file says ``after`` with its id, else, if it ended for its walltime, was preempted or lost a
    node, the next of the same name, profile and output folder.
    """
    later = [one for one in reversed(index.records) if one.submitted >= record.submitted and one.key != record.key]
    later = [one for one in later if one.profile == record.profile and one.key not in index.cancelled]
    named = next((one for one in later if record.id in _after(one.jobdir)), None)
    if named is not None or not _unfinished(record, index):
        return named
    folder = Path(record.directory).parent
    return next((one for one in later if one.name == record.name and Path(one.directory).parent == folder), None)


def _unfinished(record: Record, index: Index) -> bool:
    """Whether a job ended though its run has not."""
    outcome = read_outcome(record.jobdir)
    if outcome is not None:
        return outcome.outcome == "saved_for_walltime"
    ended = read_exit_record(record.jobdir, record.id)
    if ended is not None and ended.code == exitcodes.SAVED_FOR_WALLTIME:
        return True
    seen = index.last_change(record)
    return seen is not None and seen.state in _GOES_ON_AFTER


def _after(jobdir: Path) -> set[str]:
    """Return the ids and names of the jobs after which a job may start, by its job file."""
    try:
        raw = read_regular(jobdir / "job.yml", _JOB_FILE_BYTES)
    except (OSError, ValueError):
        return set()
    if b"after" not in raw:
        return set()
    import yaml

    from hpcjob.documents.coreyaml import CoreLoader

    try:
        document = yaml.load(raw, Loader=CoreLoader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError):
        return set()
    return set(_texts(document.get("after") if isinstance(document, dict) else None))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, inner in value.items() if key != "notok" for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [] if value is None else [str(value)]
