"""One log file as it grows: appended bytes only, by opening it anew at each look, which also works on NFS and Lustre.

The file may not exist yet, be truncated, be written anew, or be replaced by another of the same name; what the old one
still held is read first.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from hpcjob.errors import InputError
from hpcjob.logs.lines import Line, LineParser
from hpcjob.logs.sources import Source
from hpcjob.logs.wanted import Cutter, Wanted
from hpcjob.regular import size_of

CHUNK_BYTES = 256 * 1024
_FIRST_WINDOW_BYTES = 64 * 1024
_MARK_BYTES = 64

T = TypeVar("T")


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
        return size_of(self.source.path)

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
            for number, offset, data in self._cutter.feed(self._text(chunk)):
                yield self._parser.parse(offset, data, number)

    def _text(self, chunk: bytes) -> bytes:
        """Return bytes of the file as UTF-8."""
        return chunk

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
            f"{source.path}: cannot be read: {error.strerror}", hint="check its permissions, or name another file"
        ) from error
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise InputError(f"{source.path}: no regular file", hint="name a log file or a job directory, or pipe into '-'")


Grouping = Callable[[T], tuple[Hashable, Hashable]]
"""Of an item: the key of the one before that it only repeats, and the key by which later ones repeat it; or None."""


def alone(_: object) -> tuple[None, None]:
    """No item repeats another."""
    return None, None


class _Last(Generic[T]):
    """The last items; those that repeat one before count as one with it."""

    def __init__(self, count: int, grouping: Grouping[T]) -> None:
        self._count = count
        self._grouping = grouping
        self._groups: deque[list[T]] = deque()
        self._open: dict[Hashable, list[T]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, item: T) -> None:
        repeats, opens = self._grouping(item)
        group = self._open.get(repeats) if repeats is not None else None
        if group is None:
            group = []
            self._groups.append(group)
            if len(self._groups) > self._count:
                gone = self._groups.popleft()
                self._open = {key: value for key, value in self._open.items() if value is not gone}
        group.append(item)
        if opens is not None:
            self._open[opens] = group
        elif repeats is not None:
            self._open.pop(repeats, None)

    def items(self) -> list[T]:
        return [item for group in self._groups for item in group]


def last_of(
    tail: FileTail,
    count: int,
    select: Callable[[Line], Iterable[T]],
    *,
    final: bool,
    most_bytes: int | None = None,
    grouping: Grouping[T] = alone,
) -> Iterable[T]:
    """Return the last ``count`` items of one file; see `hpcjob.logs.follow.Follower.last`."""
    size = tail.size()
    most = size if most_bytes is None else min(size, most_bytes)
    window = 0 if count == 0 and not final else _FIRST_WINDOW_BYTES
    while True:
        tail.seek(max(0, size - window))
        kept = _Last(count, grouping)
        for line in tail.poll():
            for item in select(line):
                kept.add(item)
        if len(kept) >= count or window >= most:
            break
        window *= 4
    if final:
        for line in tail.finish():
            for item in select(line):
                kept.add(item)
    return kept.items()
