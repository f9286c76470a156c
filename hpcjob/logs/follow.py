"""Read log files as they grow: appended bytes only, by polling, which also works on NFS and Lustre.

A file may not exist yet, be truncated, be written anew, or be replaced by another of the same name; what the old one
still held is read first. A line is given when its newline has come, or when following ends. With `Shapes` only lines of
interest become objects, at hundreds of megabytes a second; without, every line does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from hpcjob.errors import InputError
from hpcjob.logs.compressed import compression
from hpcjob.logs.glue import unglue
from hpcjob.logs.lines import Line, LineParser, Splitter
from hpcjob.logs.scan import Scanner, Shapes
from hpcjob.logs.sources import Provider, Source, listed

CHUNK_BYTES = 256 * 1024
POLL_S = 0.4
SLOWEST_POLL_S = 0.9
"""So that a line is seen within a second."""
_SHARE_OF_CORE, _SHARE_OF_CORE_BUSY = 0.08, 0.25
_OPEN_FILES_AT_MOST = 128
_FIRST_WINDOW_BYTES = 64 * 1024
_MARK_BYTES = 64
_SILENT_POLLS = 8
_PIPE_BYTES = 1024 * 1024

T = TypeVar("T")
Pending = Callable[[str], bool]
"""Whether the next line of a file (by its path) is wanted whatever it is: see `hpcjob.logs.scan.Scanner`."""


def _never(_: str) -> bool:
    return False


class Wanted:
    """Which lines of a file are worth an object.

    Args:
        shapes: those of these shapes; None: each.
    """

    def __init__(self, shapes: Shapes | None = None, pending: Pending = _never) -> None:
        self.shapes = shapes
        self._pending = pending

    def cutter(self, path: str, offset: int = 0, *, skip_first: bool = False) -> Cutter:
        """Return what cuts the bytes of a file into lines, from a place on."""
        if self.shapes is None:
            return Cutter(Splitter(offset, skip_first=skip_first))
        pending = self._pending
        scanner = Scanner(self.shapes, pending=lambda: pending(path), offset=offset, skip_first=skip_first)
        return Cutter(scanner)


class Cutter:
    """Lines out of chunks, as (number or 0, offset, bytes)."""

    def __init__(self, cutter: Splitter | Scanner) -> None:
        self._cutter = cutter

    def feed(self, chunk: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Give the lines that a chunk completes."""
        return self._numbered(self._cutter.feed(chunk))

    def finish(self) -> Iterator[tuple[int, int, bytes]]:
        """Give the line that no newline ended, if there is one."""
        return self._numbered(self._cutter.finish())

    def put_off(self) -> Iterator[tuple[int, int, bytes]]:
        """Give the lines that were put off, see `Scanner.put_off`."""
        return iter(()) if isinstance(self._cutter, Splitter) else self._numbered(self._cutter.put_off())

    @property
    def unfinished(self) -> bytes:
        """What there is of a line whose end has not come."""
        return self._cutter.unfinished

    def _numbered(
        self, found: Iterable[tuple[int, int, bytes] | tuple[int, bytes]]
    ) -> Iterator[tuple[int, int, bytes]]:
        for item in found:
            if len(item) == 2:
                yield 0, item[0], item[1]
            else:
                number, offset, data = item
                for at, piece in unglue(data):
                    yield number, offset + at, piece


class FileTail:
    """One file, read from ``offset`` on.

    Args:
        keep_open: hold the file between polls, so that nothing is lost when it is replaced; not for hundreds of files.
    """

    def __init__(
        self,
        source: Source,
        *,
        offset: int = 0,
        hosts: set[str] | None = None,
        keep_open: bool = True,
        wanted: Wanted | None = None,
    ) -> None:
        self.source = source
        self.restarted = False
        """Whether the last poll found that the file was written anew, or is another."""
        self._parser = LineParser(str(source.path), rank=source.rank, host=source.host, hosts=hosts)
        self._keep_open = keep_open
        self._wanted = wanted or Wanted()
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._offset = offset
        self._cutter = self._cut(offset)
        self._mark = b""  # the last bytes read, which a file that only grew still has

    def _cut(self, offset: int, *, skip_first: bool = False) -> Cutter:
        return self._wanted.cutter(str(self.source.path), offset, skip_first=skip_first)

    def poll(self, until: int | None = None) -> Iterator[Line]:
        """Give the lines completed since the last poll, up to byte ``until``; none while the file does not exist."""
        self.restarted = False
        newest = _open(self.source)
        if newest is not None:
            try:
                yield from self._adopt(newest, until)
            finally:
                if not self._keep_open:
                    self.close()
        elif self._fd is not None:  # removed, but its writer may still have it open
            yield from self._drain(self._fd, until)

    def finish(self) -> Iterator[Line]:
        """Give the last line, which no newline ended, if there is one."""
        for number, offset, data in self._cutter.finish():
            yield self._parser.parse(offset, data, number)

    def put_off(self) -> Iterator[Line]:
        """Give the lines that were put off, see `hpcjob.logs.scan.Scanner.put_off`."""
        for number, offset, data in self._cutter.put_off():
            yield self._parser.parse(offset, data, number)

    def unfinished(self) -> Line | None:
        """Return what a progress bar shows whose line has not ended; None of other lines."""
        data = self._cutter.unfinished
        end = data.rfind(b"\r")  # what stands behind may be half of it
        if end < 0:
            return None
        return self._parser.parse(self._offset, data[data.rfind(b"\r", 0, end) + 1 : end])

    def close(self) -> None:
        """Close the file; a later poll opens it again and goes on where this one ended."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def seek(self, offset: int) -> None:
        """Go on from byte ``offset``, or from the start of the next line if it lies within one."""
        start = max(0, offset - 1)  # a newline just before the offset means that a whole line starts there
        self._offset = start
        self._mark = b""
        self._cutter = self._cut(start, skip_first=offset > 0)

    def size(self) -> int:
        """Size of the file in bytes, 0 if it does not exist."""
        try:
            return self.source.path.stat().st_size
        except OSError:
            return 0

    def _adopt(self, fd: int, until: int | None) -> Iterator[Line]:
        """Go on reading from a newly opened descriptor: opening anew is what makes NFS show appended bytes."""
        status = os.fstat(fd)
        identity = (status.st_dev, status.st_ino)
        held, self._fd = self._fd, fd
        replaced = self._identity is not None and identity != self._identity
        self._identity = identity
        try:
            if replaced and held is not None:
                yield from self._drain(held, None)
        finally:
            if held is not None:
                os.close(held)
        if replaced or status.st_size < self._offset or self._written_anew(fd, status.st_size):
            yield from self.finish()
            self.restarted = True
            self._offset, self._mark = 0, b""
            self._cutter = self._cut(0)
        yield from self._drain(fd, until)

    def _written_anew(self, fd: int, size: int) -> bool:
        """Tell whether a file that is longer than what was read of it does not have these bytes any more."""
        if not self._mark or size == self._offset:
            return False
        return os.pread(fd, len(self._mark), self._offset - len(self._mark)) != self._mark

    def _drain(self, fd: int, until: int | None) -> Iterator[Line]:
        end = os.fstat(fd).st_size  # not "until nothing comes": a fast writer must not starve the other files
        if until is not None:
            end = min(end, until)
        while self._offset < end:
            chunk = os.pread(fd, min(CHUNK_BYTES, end - self._offset), self._offset)
            if not chunk:
                return
            if len(chunk) == CHUNK_BYTES and not chunk.strip(b"\0"):
                yield from self.finish()
                self._over_hole(fd, end)
                continue
            self._offset += len(chunk)
            self._mark = chunk[-_MARK_BYTES:]
            for number, offset, data in self._cutter.feed(chunk):
                yield self._parser.parse(offset, data, number)

    def _over_hole(self, fd: int, end: int) -> None:
        """Go to the next data of a file with holes: gigabytes of nothing are not read."""
        try:
            self._offset = min(max(os.lseek(fd, self._offset, os.SEEK_DATA), self._offset + CHUNK_BYTES), end)
        except OSError:  # a hole up to the end, or a file system that does not tell
            self._offset = min(self._offset + CHUNK_BYTES, end)
        self._mark = b""
        self._cutter = self._cut(self._offset)


def _open(source: Source) -> int | None:
    try:
        fd = os.open(source.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
            return None
        raise InputError(
            f"{source.path}: cannot be read: {error.strerror}", hint="Check its permissions, or name another file."
        ) from error
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise InputError(f"{source.path}: no regular file", hint="Name a log file or a job directory, or pipe into '-'.")


class Follower:
    """All files that ``provider`` names, read together.

    Args:
        wanted: which lines are worth an object.
        hosts: names of hosts, for prefixes such as ``node: ``; without them only names that look like hosts are taken.
    """

    def __init__(self, provider: Provider, *, wanted: Wanted | None = None, hosts: Iterable[str] = ()) -> None:
        self._provider = provider
        self._wanted = wanted or Wanted()
        self._hosts = set(hosts)
        self._tails: dict[Source, FileTail] = {}
        self._silent: dict[Source, int] = {}

    def tails(self) -> list[FileTail]:
        """Return a reader for each file named so far and now, new ones at the start of their file.

        Files that are no longer named, such as those of the job before, are left once they are silent.
        """
        named = dict.fromkeys(self._provider())
        keep_open = len(named) <= _OPEN_FILES_AT_MOST
        for source in named:
            if source not in self._tails:
                self._tails[source] = self._tail(source, keep_open)
        return [
            tail
            for source, tail in self._tails.items()
            if source in named or self._silent.get(source, 0) < _SILENT_POLLS
        ]

    def _tail(self, source: Source, keep_open: bool) -> FileTail:
        if compression(source.path) is None:
            return FileTail(source, hosts=self._hosts, keep_open=keep_open, wanted=self._wanted)
        from hpcjob.logs.archive import ArchiveTail

        return ArchiveTail(source, hosts=self._hosts, wanted=self._wanted)

    def poll(self) -> Iterator[Line]:
        """Give the lines completed since the last poll, file by file."""
        for tail in self.tails():
            came = False
            for line in tail.poll():
                came = True
                yield line
            self._silent[tail.source] = 0 if came else self._silent.get(tail.source, 0) + 1

    def finish(self) -> Iterator[Line]:
        """Give the lines that no newline ended."""
        for tail in self._tails.values():
            yield from tail.finish()

    def last(
        self, count: int, select: Callable[[Line], Iterable[T]], *, final: bool, most_bytes: int | None = None
    ) -> Iterator[T]:
        """Give the last ``count`` items of each file that ``select`` makes of its lines, reading from the end
        backwards.

        Args:
            final: the files will not grow any more: a line that no newline ended counts too.
            most_bytes: do not look further back in a file.
        """
        for tail in self.tails():
            yield from last_of(tail, count, select, final=final, most_bytes=most_bytes)

    def close(self) -> None:
        """Close all files."""
        for tail in self._tails.values():
            tail.close()


def last_of(
    tail: FileTail,
    count: int,
    select: Callable[[Line], Iterable[T]],
    *,
    final: bool,
    most_bytes: int | None = None,
) -> Iterable[T]:
    """Return the last ``count`` items of one file; see `Follower.last`."""
    size = tail.size()
    most = size if most_bytes is None else min(size, most_bytes)
    window = 0 if count == 0 and not final else _FIRST_WINDOW_BYTES
    while True:
        tail.seek(max(0, size - window))
        kept: deque[T] = deque(maxlen=count)
        for line in tail.poll():
            kept.extend(select(line))
        if len(kept) >= count or window >= most:
            break
        window *= 4
    if final:
        for line in tail.finish():
            kept.extend(select(line))
    return kept


def pauses(poll_s: float = POLL_S) -> Iterator[float]:
    """Give the times to wait between polls, in seconds, growing to `SLOWEST_POLL_S`; make a new one when data came."""
    while True:
        yield poll_s
        poll_s = max(poll_s, min(poll_s * 1.25, SLOWEST_POLL_S))


def pause(wait_s: float, used_s: float, *, came: bool) -> float:
    """Return how long to wait after a poll that took ``used_s`` of CPU time: thousands of files cost more than a few,
    and a login node is shared.

    Args:
        came: whether there was anything to read, which may take a larger share of the core.
    """
    share = _SHARE_OF_CORE_BUSY if came else _SHARE_OF_CORE
    return max(wait_s, used_s * (1 / share - 1))


def follow(
    sources: Provider | Iterable[Source | Path],
    *,
    stop: Callable[[], bool],
    poll_s: float = POLL_S,
    hosts: Iterable[str] = (),
    wanted: Wanted | None = None,
) -> Iterator[Line]:
    """Give the lines of log files from their start, as they come, until ``stop`` says that the job has ended.

    After ``stop`` has returned true everything that is in the files is still read, then the iteration ends.

    Args:
        sources: the files, or a function that names them; it is asked again at each poll.
        stop: asked once a poll, so it may be as slow as a question to the scheduler that is cached.
        poll_s: first wait between two polls in seconds; it grows to `SLOWEST_POLL_S` while nothing comes.
        wanted: which lines are worth an object; None: each.
    """
    follower = Follower(sources if callable(sources) else listed(sources), hosts=hosts, wanted=wanted)
    waits = pauses(poll_s)
    with contextlib.closing(follower):
        while True:
            ended = stop()  # before reading: what was written until now is read below
            came = False
            began_s = time.process_time()
            for line in follower.poll():
                came = True
                yield line
            if ended:
                yield from follower.finish()
                return
            if came:
                waits = pauses(poll_s)
            time.sleep(pause(next(waits), time.process_time() - began_s, came=came))


def read_stream(
    fd: int,
    name: str,
    *,
    hosts: Iterable[str] = (),
    wanted: Wanted | None = None,
    last: deque[bytes] | None = None,
) -> Iterator[Line]:
    """Give the lines of a pipe or terminal as they come, until its end.

    Args:
        last: is given the bytes as they come, of which it keeps what it has room for.
    """
    cutter = (wanted or Wanted()).cutter(name)
    parser = LineParser(name, hosts=set(hosts))
    with contextlib.suppress(OSError, AttributeError):  # not everywhere, and not for terminals
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    while chunk := os.read(fd, CHUNK_BYTES):
        if last is not None:
            last.append(chunk)
        for number, offset, data in cutter.feed(chunk):
            yield parser.parse(offset, data, number)
    for number, offset, data in cutter.finish():
        yield parser.parse(offset, data, number)
