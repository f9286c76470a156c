"""Read log files as they grow: appended bytes only, by polling, which also works on NFS and Lustre.

A file may not exist yet, be truncated, or be replaced by another of the same name; what the old one still held is read
first. A line is given when its newline has come, or when following ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from hpcjob.errors import InputError
from hpcjob.logs.compressed import compression
from hpcjob.logs.lines import Gate, Line, LineParser, Splitter
from hpcjob.logs.sources import Provider, Source, listed

CHUNK_BYTES = 256 * 1024
POLL_S = 0.5
SLOWEST_POLL_S = 2.0
_OPEN_FILES_AT_MOST = 128
_FIRST_WINDOW_BYTES = 64 * 1024

T = TypeVar("T")


class FileTail:
    """One file, read from ``offset`` on.

    Args:
        keep_open: hold the file between polls, so that nothing is lost when it is replaced; not for hundreds of files.
    """

    def __init__(
        self, source: Source, *, offset: int = 0, hosts: set[str] | None = None, keep_open: bool = True
    ) -> None:
        self.source = source
        self._parser = LineParser(str(source.path), rank=source.rank, hosts=hosts)
        self._keep_open = keep_open
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._offset = offset
        self._splitter = Splitter(offset)

    def poll(self, gate: Gate | None = None) -> Iterator[Line]:
        """Give the lines completed since the last poll; none while the file does not exist."""
        newest = _open(self.source)
        if newest is not None:
            try:
                yield from self._adopt(newest, gate)
            finally:
                if not self._keep_open:
                    self.close()
        elif self._fd is not None:  # removed, but its writer may still have it open
            yield from self._drain(self._fd, gate)

    def finish(self) -> Iterator[Line]:
        """Give the last line, which no newline ended, if there is one."""
        for offset, data in self._splitter.finish():
            yield self._parser.parse(offset, data)

    def close(self) -> None:
        """Close the file; a later poll opens it again and goes on where this one ended."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def seek(self, offset: int) -> None:
        """Go on from byte ``offset``, or from the start of the next line if it lies within one."""
        start = max(0, offset - 1)  # a newline just before the offset means that a whole line starts there
        self._offset = start
        self._splitter = Splitter(start, skip_first=offset > 0)

    def size(self) -> int:
        """Size of the file in bytes, 0 if it does not exist."""
        try:
            return self.source.path.stat().st_size
        except OSError:
            return 0

    def _adopt(self, fd: int, gate: Gate | None) -> Iterator[Line]:
        """Go on reading from a newly opened descriptor: opening anew is what makes NFS show appended bytes."""
        status = os.fstat(fd)
        identity = (status.st_dev, status.st_ino)
        held, self._fd = self._fd, fd
        replaced = self._identity is not None and identity != self._identity
        self._identity = identity
        try:
            if replaced and held is not None:
                yield from self._drain(held, gate)
        finally:
            if held is not None:
                os.close(held)
        if replaced or status.st_size < self._offset:
            yield from self.finish()
            self._offset = 0
            self._splitter = Splitter()
        yield from self._drain(fd, gate)

    def _drain(self, fd: int, gate: Gate | None) -> Iterator[Line]:
        end = os.fstat(fd).st_size  # not "until nothing comes": a fast writer must not starve the other files
        while self._offset < end:
            chunk = os.pread(fd, min(CHUNK_BYTES, end - self._offset), self._offset)
            if not chunk:
                return
            self._offset += len(chunk)
            for offset, data in self._splitter.feed(chunk):
                if gate is None or gate(data):
                    yield self._parser.parse(offset, data)


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
        gate: drops lines that cannot be of interest (see `hpcjob.logs.lines.Gate`).
        hosts: names of hosts, for prefixes such as ``node: ``; without them only names that look like hosts are taken.
    """

    def __init__(self, provider: Provider, *, gate: Gate | None = None, hosts: Iterable[str] = ()) -> None:
        self._provider = provider
        self._gate = gate
        self._hosts = set(hosts)
        self._tails: dict[Source, FileTail] = {}

    def tails(self) -> list[FileTail]:
        """Return a reader for each file named so far and now, new ones at the start of their file."""
        named = list(self._provider())
        keep_open = len(named) <= _OPEN_FILES_AT_MOST
        for source in named:
            if source not in self._tails:
                self._tails[source] = self._tail(source, keep_open)
        return list(self._tails.values())

    def _tail(self, source: Source, keep_open: bool) -> FileTail:
        if compression(source.path) is None:
            return FileTail(source, hosts=self._hosts, keep_open=keep_open)
        from hpcjob.logs.archive import ArchiveTail

        return ArchiveTail(source, hosts=self._hosts)

    def poll(self) -> Iterator[Line]:
        """Give the lines completed since the last poll, file by file."""
        for tail in self.tails():
            yield from tail.poll(self._gate)

    def finish(self) -> Iterator[Line]:
        """Give the lines that no newline ended."""
        for tail in self._tails.values():
            yield from tail.finish()

    def last(self, count: int, select: Callable[[Line], Iterable[T]], *, final: bool) -> Iterator[T]:
        """Give the last ``count`` items of each file that ``select`` makes of its lines, reading from the end
        backwards.

        Args:
            final: the files will not grow any more: a line that no newline ended counts too.
        """
        for tail in self.tails():
            yield from self._last_of(tail, count, select, final)

    def _last_of(self, tail: FileTail, count: int, select: Callable[[Line], Iterable[T]], final: bool) -> Iterable[T]:
        size = tail.size()
        window = 0 if count == 0 and not final else _FIRST_WINDOW_BYTES
        while True:
            tail.seek(max(0, size - window))
            kept: deque[T] = deque(maxlen=count)
            for line in tail.poll(self._gate):
                kept.extend(select(line))
            if len(kept) >= count or window >= size:
                break
            window *= 4
        if final:
            for line in tail.finish():
                kept.extend(select(line))
        return kept

    def close(self) -> None:
        """Close all files."""
        for tail in self._tails.values():
            tail.close()


def pauses(poll_s: float = POLL_S) -> Iterator[float]:
    """Give the times to wait between polls, in seconds, growing to `SLOWEST_POLL_S`; make a new one when data came."""
    while True:
        yield poll_s
        poll_s = max(poll_s, min(poll_s * 1.25, SLOWEST_POLL_S))


def follow(
    sources: Provider | Iterable[Source | Path],
    *,
    stop: Callable[[], bool],
    poll_s: float = POLL_S,
    hosts: Iterable[str] = (),
) -> Iterator[Line]:
    """Give the lines of log files from their start, as they come, until ``stop`` says that the job has ended.

    After ``stop`` has returned true everything that is in the files is still read, then the iteration ends.

    Args:
        sources: the files, or a function that names them; it is asked again at each poll.
        stop: asked once a poll, so it may be as slow as a question to the scheduler that is cached.
        poll_s: first wait between two polls in seconds; it grows to 2 s while nothing comes.
    """
    follower = Follower(sources if callable(sources) else listed(sources), hosts=hosts)
    waits = pauses(poll_s)
    with contextlib.closing(follower):
        while True:
            ended = stop()  # before reading: what was written until now is read below
            came = False
            for line in follower.poll():
                came = True
                yield line
            if ended:
                yield from follower.finish()
                return
            if came:
                waits = pauses(poll_s)
            time.sleep(next(waits))


def read_stream(fd: int, name: str, *, hosts: Iterable[str] = (), gate: Gate | None = None) -> Iterator[Line]:
    """Give the lines of a pipe or terminal as they come, until its end."""
    splitter = Splitter()
    parser = LineParser(name, hosts=set(hosts))
    while chunk := os.read(fd, CHUNK_BYTES):
        for offset, data in splitter.feed(chunk):
            if gate is None or gate(data):
                yield parser.parse(offset, data)
    for offset, data in splitter.finish():
        yield parser.parse(offset, data)
