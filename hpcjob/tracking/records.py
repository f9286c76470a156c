"""What a line of the index of jobs says: a submission, a state that was seen, or an order to end or to forget.

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


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a job.

    Attributes:
        profile, server, id, submitted: the job's key.
        time: when, ISO 8601 in UTC.
    """

    profile: str
    server: str
    id: str
    submitted: str
    time: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The key of the job's record."""
        return self.profile, self.server, self.id, self.submitted


class Cancel(Mark, frozen=True, kw_only=True, tag_field="event", tag="cancel"):
    """That a scheduler has taken the order to end a job: some do not tell an end that was asked for from another."""


class Forget(Mark, frozen=True, kw_only=True, tag_field="event", tag="forget"):
    """That a job is not to be shown any more."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="submitted", omit_defaults=True):
    """One submission, as it stands in the index.

    Attributes:
        profile: name of the cluster profile; scheduler: its scheduler's type.
        server: Slurm cluster named by ``sbatch``, host name of a local job, else empty.
        id: the scheduler's id, of a PBS array without its brackets; ``ID_7`` for an element of an array.
        submitted: when, ISO 8601 in UTC.
        directory: absolute path of the job directory; log: a log file named by ``attach``.
        submit_dir: folder it was submitted from.
        nodes: nodes asked for; walltime_s: limit in seconds.
        command: the line that submitted it.
        attached: whether it was submitted by hand and attached later.
        history: whether the profile says that finished jobs can be queried.
        array: of an array, the indices of its elements.
        element_of: of an element, the id of its array; index: its index.
        array_spec: of an element, the indices of its array.
        after: what it comes after, as ``afterok:123``.
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
    array: str | None = None
    element_of: str | None = None
    index: int = 0
    array_spec: str | None = None
    after: tuple[str, ...] = ()

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
        from hpcjob.arrays import task_of
        from hpcjob.schedulers.base import JobRef, element_of

        cluster = self.server if self.scheduler in ("slurm", "local") and self.server else None
        if self.element_of is not None:
            array = JobRef(self.element_of, self.jobdir.parent, cluster)
            return element_of(array, self.index, task_of(self.array_spec or "", self.scheduler, self.index))
        return JobRef(self.id, self.jobdir, cluster, spec=self.array)

    @property
    def array_key(self) -> tuple[str, str, str, str]:
        """The key of the array that an element is of; of any other job its own."""
        return self.profile, self.server, self.element_of or self.id, self.submitted

    def element(self, index: int) -> Record:
        """Return the element of an array with that index, as a job of its own."""
        return msgspec.structs.replace(
            self,
            id=f"{self.id}_{index}",
            name=f"{self.name}_{index}",
            directory=str(self.jobdir / str(index)),
            array=None,
            element_of=self.id,
            index=index,
            array_spec=self.array,
        )

    @property
    def age_s(self) -> float:
        """Seconds since the submission."""
        return (datetime.now(timezone.utc) - datetime.fromisoformat(self.submitted)).total_seconds()

    def cancel(self) -> Cancel:
        """Return that the scheduler was asked now to end this job."""
        return Cancel(profile=self.profile, server=self.server, id=self.id, submitted=self.submitted, time=now())

    def forget(self) -> Forget:
        """Return that this job is not to be shown any more."""
        return Forget(profile=self.profile, server=self.server, id=self.id, submitted=self.submitted, time=now())

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
