"""What a line of the index of jobs says: a submission, a state that was seen, or an order to end.

The index itself is `hpcjob.tracking.index`.
"""

from __future__ import annotations

import glob
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpcjob.states import State

if TYPE_CHECKING:
    from hpcjob.schedulers.base import JobRef

_SOFT = {State.NODE_FAIL, State.PREEMPTED}
_SOFT_FOR = timedelta(days=1)


def now() -> str:
    """Return the time in UTC, ISO 8601 with microseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


class Change(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="state", omit_defaults=True):
    """A state in which a job was seen.

    Attributes:
        profile, server, id, submitted: the job's key.
        time: when it was seen, ISO 8601 in UTC.
        exit_code: exit code of the job, where it is known.
        reason: what the scheduler, or the lack of an answer, said.
    """

    profile: str
    server: str
    id: str
    submitted: str
    state: State
    time: str
    exit_code: int | None = None
    reason: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether nobody needs to be asked again.

        For a day somebody is: where a scheduler may still start the job anew, and where its history was silent on the
        code of a failure.
        """
        if self.state in _SOFT or (self.state is State.FAILED and self.exit_code is None):
            return datetime.now(timezone.utc) - datetime.fromisoformat(self.time) > _SOFT_FOR
        return self.state.ended


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="cancel"):
    """That a scheduler has taken the order to end a job: some do not tell an end that was asked for from another.

    Attributes:
        profile, server, id, submitted: the job's key.
        time: when, ISO 8601 in UTC.
    """

    profile: str
    server: str
    id: str
    submitted: str
    time: str


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="submitted", omit_defaults=True):
    """One submission, as it stands in the index.

    Attributes:
        profile: name of the cluster profile; scheduler: its scheduler's type.
        server: Slurm cluster named by ``sbatch``, host name of a local job, else empty.
        id: the scheduler's id (``A_a`` for an element of an array).
        submitted: when, ISO 8601 in UTC.
        directory: absolute path of the job directory; log: a log file named by ``attach``.
        submit_dir: folder it was submitted from.
        nodes: nodes asked for; walltime_s: limit in seconds.
        command: the line that submitted it.
        attached: whether it was submitted by hand and attached later.
        history: whether the profile says that finished jobs can be queried.
    """

    profile: str
    scheduler: str
    server: str
    id: str
    submitted: str
    name: str
    directory: str
    submit_dir: str = ""
    log: str | None = None
    nodes: int = 1
    walltime_s: int | None = None
    command: str | None = None
    attached: bool = False
    history: bool = True

    @property
    def job_id(self) -> str:
        """The scheduler's id."""
        return self.id

    @property
    def jobdir(self) -> Path:
        """The job directory; of a job that waited when it was attached, the one that its script has made since."""
        folder = Path(self.directory)
        return (self.attached and not self.log and made_by_script(folder, self.id)) or folder

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes a record unique: ids come round again, within a submission's second they do not."""
        return self.profile, self.server, self.id, self.submitted

    @property
    def ref(self) -> JobRef:
        """The job as a scheduler is asked about it."""
        from hpcjob.schedulers.base import JobRef

        return JobRef(self.id, self.jobdir, self.server or None)

    @property
    def age_s(self) -> float:
        """Seconds since the submission."""
        return (datetime.now(timezone.utc) - datetime.fromisoformat(self.submitted)).total_seconds()

    def cancel(self) -> Cancel:
        """Return that the scheduler was asked now to end this job."""
        return Cancel(profile=self.profile, server=self.server, id=self.id, submitted=self.submitted, time=now())

    def change(self, state: State, exit_code: int | None = None, reason: str | None = None) -> Change:
        """Return that this job was seen in ``state`` now."""
        return Change(
            profile=self.profile,
            server=self.server,
            id=self.id,
            submitted=self.submitted,
            state=state,
            time=now(),
            exit_code=exit_code,
            reason=reason,
        )


def made_by_script(folder: Path, job_id: str) -> Path | None:
    """Return the job directory that a rendered script, submitted by hand from ``folder``, has made; None: not yet."""
    made = sorted(path for path in folder.glob(f"outputs/*/*Z-{glob.escape(job_id)}") if path.is_dir())
    return made[-1] if made else None
