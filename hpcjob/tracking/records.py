"""The index of submitted jobs: append-only JSON lines in the user's state folder, read from any directory.

Each file belongs to one profile and one login host: over a network file system ``O_APPEND`` is atomic within one host
only. A line is either a submission or a state that was seen; a damaged line costs that line alone.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from urllib.parse import quote

import msgspec

from hpcjob.errors import HpcjobError, UnknownJobError
from hpcjob.profile import SchedulerName
from hpcjob.regular import read_regular
from hpcjob.states import State

if TYPE_CHECKING:
    from hpcjob.schedulers.base import JobRef

LATEST = "latest"
_SOFT = {State.NODE_FAIL, State.PREEMPTED}
_STALE_S = 5.0
_SOFT_FOR = timedelta(days=1)
_ROOM_BYTES = 64 * 1024
_ID = re.compile(r"\w[\w.\[\]-]*", re.ASCII)  # it becomes an argument of commands and a part of names of files


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


@dataclass
class Index:
    """All that the state folder holds.

    Attributes:
        records: newest first.
        changes: key of a record -> the states it was seen in, oldest first.
        cancelled: keys of the records whose jobs a scheduler was asked to end.
        damaged: files with lines that could not be read, and how many.
        read_at_s: when it was read, on the monotonic clock.
    """

    records: list[Record] = field(default_factory=list)
    changes: dict[tuple[str, str, str, str], list[Change]] = field(default_factory=dict)
    cancelled: set[tuple[str, str, str, str]] = field(default_factory=set)
    damaged: dict[Path, int] = field(default_factory=dict)
    read_at_s: float = field(default_factory=time.monotonic)

    def was_cancelled(self, record: Record) -> bool:
        """Return whether a scheduler was asked to end the job; looks again into an index that is seconds old."""
        if record.key not in self.cancelled and time.monotonic() - self.read_at_s > _STALE_S:
            self.cancelled |= read_index().cancelled
            self.read_at_s = time.monotonic()
        return record.key in self.cancelled

    def last_change(self, record: Record) -> Change | None:
        """Return the state in which ``record`` was last seen, or None."""
        changes = self.changes.get(record.key)
        return changes[-1] if changes else None

    def ended(self, record: Record) -> bool:
        """Return whether ``record`` was last seen as ended; an end that may not be the last word is none."""
        change = self.last_change(record)
        return change is not None and change.is_final


Line = Record | Change | Cancel
_DECODER = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()


def now() -> str:
    """Return the time in UTC, ISO 8601 with microseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def state_dir() -> Path:
    """Return the folder of the index (``$XDG_STATE_HOME/hpcjob``, by default ``~/.local/state/hpcjob``)."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "hpcjob"


def _file(profile: str) -> Path:
    return state_dir() / f"{quote(profile, safe='')[:150]}@{quote(os.uname().nodename, safe='')}.jsonl"


def ensure_writable(profile: str) -> None:
    """Make the index ready for an append, before anything is submitted.

    Raises:
        HpcjobError: it cannot be written; nothing was submitted.
    """
    try:
        os.close(_open(_file(profile)))
    except OSError as error:
        raise HpcjobError(
            f"{error.filename or state_dir()}: {error.strerror}; a job could not be tracked, nothing was submitted",
            hint="mend that folder, or set XDG_STATE_HOME to one that you may write",
        ) from None


@contextlib.contextmanager
def room_for_record(profile: str) -> Iterator[None]:
    """Hold the space of one record while a job is submitted: what is in the queue can be written down then.

    Raises:
        HpcjobError: there is none, or the index cannot be written; nothing was submitted.
    """
    ensure_writable(profile)
    held = state_dir() / f".room-{os.uname().nodename}-{os.getpid()}.tmp"
    try:
        try:
            with held.open("wb") as file:
                file.write(b"\0" * _ROOM_BYTES)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise HpcjobError(
                f"{_file(profile)}: {error.strerror}; a job could not be tracked, nothing was submitted",
                hint="free some space there, or set XDG_STATE_HOME to a folder that has some",
            ) from None
        yield
    finally:
        with contextlib.suppress(OSError):
            held.unlink()


def append(line: Line) -> None:
    """Append ``line`` to the index in one write; a torn line before it is closed first.

    Raises:
        OSError: the line was not written, or not whole, or nobody could read it back; ``filename`` is the index.
    """
    path = _file(line.profile)
    try:
        _append(path, line)
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from None


def _append(path: Path, line: Line) -> None:
    try:
        encoded = _ENCODER.encode(line)
        _decoded(encoded)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"this cannot be recorded: {error}") from None
    handle = _open(path)
    try:
        end = os.fstat(handle).st_size
        torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"
        data = (b"\n" if torn else b"") + encoded + b"\n"
        written = os.write(handle, data)
        if written != len(data):
            raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return handle


def read_index() -> Index:
    """Read the whole index; a file or line that cannot be read is counted in ``damaged`` and left out."""
    index = Index()
    folder = state_dir()
    files = sorted(folder.glob("*.jsonl")) if os.path.isdir(folder) else []  # noqa: PTH112 - false where it is closed
    lines = [placed for path in files for placed in _placed(_lines(path, index))]
    lines.sort(key=lambda placed: placed[0])
    for _, line in lines:
        if isinstance(line, Record):
            index.records.append(line)
        elif isinstance(line, Change):
            index.changes.setdefault((line.profile, line.server, line.id, line.submitted), []).append(line)
        else:
            index.cancelled.add((line.profile, line.server, line.id, line.submitted))
    index.records.reverse()
    return index


def _placed(lines: Iterable[Line]) -> Iterator[tuple[datetime, Line]]:
    """Give the lines of one file with the times by which they are merged with those of others.

    In a file the order is that of the lines: a clock may have jumped. A time that is yet to come tells nothing.
    """
    today, latest = datetime.now(timezone.utc), datetime.min.replace(tzinfo=timezone.utc)
    for line in lines:
        told = _moment(line.submitted if isinstance(line, Record) else line.time)
        latest = max(latest, told) if told <= today else latest
        yield latest, line


def _moment(text: str) -> datetime:
    """Return an ISO 8601 time in UTC. Raises ValueError if it is none, or has no zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    try:
        return time.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(f"{text!r} is out of range") from None


def _decoded(text: bytes) -> Line:
    """Return a line of the index. Raises ValueError if it is damaged: all that its readers rely on is checked here."""
    try:
        line = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _moment(line.submitted)
    if not isinstance(line, Record):
        _moment(line.time)
    elif line.scheduler not in get_args(SchedulerName):
        raise ValueError(f"no scheduler {line.scheduler!r}")
    elif not all(os.path.isabs(path) for path in (line.directory, line.log or "/")):  # noqa: PTH117
        raise ValueError("a relative path")
    if not _ID.fullmatch(line.id):
        raise ValueError(f"no id of a job: {line.id!r}")
    if any("\0" in value for value in msgspec.structs.astuple(line) if isinstance(value, str)):
        raise ValueError("a zero byte in a text")
    return line


def _lines(path: Path, index: Index) -> Iterator[Line]:
    try:
        raw = read_regular(path)
    except OSError:
        index.damaged[path] = index.damaged.get(path, 0) + 1
        return
    for line in raw.split(b"\n"):
        if not line.strip():
            continue
        try:
            decoded = _decoded(line)
        except ValueError:
            index.damaged[path] = index.damaged.get(path, 0) + 1
            continue
        yield decoded


def find_job(text: str, index: Index | None = None) -> Record:
    """Return the job of that id, name, unique beginning of a name, job directory, or ``latest``.

    An id that several clusters know is told apart as ``profile:id``. Of several jobs of one name the newest is meant.

    Raises:
        UnknownJobError: none is known, or several of different names begin so; they are listed.
    """
    records = (index or read_index()).records
    if not records:
        raise UnknownJobError(
            "no jobs are recorded here", hint="hpcjob submit, or hpcjob attach ID for one submitted by hand"
        )
    if text == LATEST:
        return records[0]
    for hits in _matches(text, records):
        if hits:
            return _the_one(text, hits)
    recent = ", ".join(dict.fromkeys(f"{record.id} ({record.name})" for record in records[:4]))
    raise UnknownJobError(f"no job {text!r} is recorded", hint=f"the newest: {recent}; hpcjob list shows more")


def _matches(text: str, records: list[Record]) -> Iterable[list[Record]]:
    """Yield what each way of naming a job finds, the strictest first."""
    profile, _, inner = text.partition(":")
    yield [record for record in records if record.id == text or (record.id == inner and record.profile == profile)]
    yield [record for record in records if record.name == text]
    if "/" in text:
        path = Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 - links are kept as the user wrote them
        yield [record for record in records if record.jobdir == path]
    if text:
        yield [record for record in records if record.name.startswith(text)]
        bare = re.escape(text)
        yield [record for record in records if re.fullmatch(rf"{bare}\.[\w.-]+", record.id)]


def _the_one(text: str, hits: list[Record]) -> Record:
    newest = hits[0]
    same_id = [record for record in hits if record.id == text]
    kinds = {record.profile for record in same_id} if same_id else {record.name for record in hits}
    if len(kinds) == 1:
        return newest
    many = dict.fromkeys(f"{record.profile}:{record.id} ({record.name})" for record in hits[:6])
    raise UnknownJobError(f"{text!r} means several jobs", hint=f"say which: {', '.join(many)}")
