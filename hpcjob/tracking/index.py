"""The index of submitted jobs: append-only JSON lines in the user's state folder, read from any directory.

Each file belongs to one profile and one login host: over a network file system ``O_APPEND`` is atomic within one host
only. A line is either a submission or a state that was seen; a damaged line costs that line alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import get_args
from urllib.parse import quote

import msgspec

from hpcjob.errors import HpcjobError
from hpcjob.home import expanded
from hpcjob.profile import SchedulerName
from hpcjob.regular import read_regular
from hpcjob.states import State
from hpcjob.tracking.records import Cancel, Change, Forget, Record

_STALE_S = 5.0
_ROOM_BYTES = 64 * 1024
_ID = re.compile(r"\w[\w.\[\]-]*", re.ASCII)  # it becomes an argument of commands and a part of names of files

Line = Record | Change | Cancel | Forget
_DECODER = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()


@dataclass
class Index:
    """All that the state folder holds.

    Attributes:
        records: newest first, without those that are to be forgotten.
        changes: key of a record -> the states it was seen in, oldest first.
        cancelled: keys of the records whose jobs a scheduler was asked to end.
        damaged: files with lines that could not be read, and how many.
        unread: files that could not be read at all, and why.
        read_at_s: when it was read, on the monotonic clock.
    """

    records: list[Record] = field(default_factory=list)
    changes: dict[tuple[str, str, str, str], list[Change]] = field(default_factory=dict)
    cancelled: set[tuple[str, str, str, str]] = field(default_factory=set)
    damaged: dict[Path, int] = field(default_factory=dict)
    unread: dict[Path, str] = field(default_factory=dict)
    read_at_s: float = field(default_factory=time.monotonic)

    def was_cancelled(self, record: Record) -> bool:
        """Return whether a scheduler was asked to end the job; looks again into an index that is seconds old."""
        keys = {record.key, record.array_key}
        if not keys & self.cancelled and time.monotonic() - self.read_at_s > _STALE_S:
            self.cancelled |= read_index().cancelled
            self.read_at_s = time.monotonic()
        return bool(keys & self.cancelled)

    def last_change(self, record: Record) -> Change | None:
        """Return the state in which ``record`` was last seen, or None."""
        changes = self.changes.get(record.key)
        return changes[-1] if changes else None

    def waited_for(self, record: Record) -> str | None:
        """Return why ``record`` was last seen waiting, in its scheduler's words."""
        changes = self.changes.get(record.key, ())
        return next((one.reason for one in reversed(changes) if one.state is State.PENDING), None)

    def ended(self, record: Record) -> bool:
        """Return whether ``record`` was last seen as ended; an end that may not be the last word is none."""
        change = self.last_change(record)
        return change is not None and change.is_final


def state_dir() -> Path:
    """Return the folder of the index (``$XDG_STATE_HOME/hpcjob``, by default ``~/.local/state/hpcjob``).

    Raises:
        HpcjobError: nobody knows a home folder.
    """
    folder = expanded(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "hpcjob"
    if str(folder).startswith("~"):
        raise HpcjobError("no home folder is known, in which jobs are recorded", hint="set HOME or XDG_STATE_HOME")
    return folder


def intent_folder() -> Path:
    """Return the folder of submissions under way; see `hpcjob.tracking.intents`."""
    return state_dir() / "submitting"


def intent_files() -> list[Path]:
    """Return the files of submissions that are under way, or were broken off."""
    folder = intent_folder()
    return sorted(folder.glob("*.json")) if os.path.isdir(folder) else []  # noqa: PTH112 - false where it is closed


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
            hint="fix that folder, or set XDG_STATE_HOME to one that you may write",
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
    """Read the whole index; what cannot be read is left out: see `Index`."""
    index = Index()
    folder = state_dir()
    files = sorted(folder.glob("*.jsonl")) if os.path.isdir(folder) else []  # noqa: PTH112 - false where it is closed
    lines = [placed for path in files for placed in _placed(_lines(path, index))]
    lines.sort(key=lambda placed: placed[0])
    forgotten: set[tuple[str, str, str, str]] = set()
    for _, line in lines:
        if isinstance(line, Record):
            index.records.append(line)
        elif isinstance(line, Change):
            index.changes.setdefault((line.profile, line.server, line.id, line.submitted), []).append(line)
        elif isinstance(line, Cancel):
            index.cancelled.add(line.key)
        else:
            forgotten.add(line.key)
    index.records.reverse()
    if forgotten:
        index.records = [record for record in index.records if record.key not in forgotten]
    return index


def read_settled() -> tuple[Index, list[str]]:
    """Read the whole index after submissions that were broken off have been looked for; and what of them is to tell."""
    index = read_index()
    if not intent_files():
        return index, []
    from hpcjob.tracking.intents import settle

    notes = settle(index)
    return (read_index(), notes) if notes else (index, notes)


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
    elif line.element_of is not None:
        raise ValueError("an element of an array, which has no record of its own")
    elif not (line.directory.startswith("/") and (not line.log or line.log.startswith("/"))):
        raise ValueError("a relative path")
    if not _ID.fullmatch(line.id):
        raise ValueError(f"no id of a job: {line.id!r}")
    if isinstance(line, Record) and line.array is not None:
        _check_spec(line.array)
    may_hold_zero = b"\0" in text or b"u0000" in text
    if may_hold_zero and any("\0" in value for value in msgspec.structs.astuple(line) if isinstance(value, str)):
        raise ValueError("a zero byte in a text")
    return line


def _check_spec(spec: str) -> None:
    """Raise ValueError where that is no text for the indices of an array."""
    from hpcjob.arrays import parse_spec

    try:
        parse_spec(spec)
    except HpcjobError as error:
        raise ValueError(error.message) from None


def _lines(path: Path, index: Index) -> Iterator[Line]:
    try:
        raw = read_regular(path)
    except OSError as error:
        index.unread[path] = error.strerror or str(error)
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
