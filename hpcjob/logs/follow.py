"""Read log files as they grow, all of a job together, and pipes.

A line is given when its newline has come, or when following ends. With `Shapes` only lines of interest become objects,
at hundreds of megabytes a second; without, every line does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from hpcjob.logs.compressed import compression
from hpcjob.logs.endless import EndlessGuard
from hpcjob.logs.file_tail import FileTail, Grouping, alone, last_of
from hpcjob.logs.lines import Line, LineParser
from hpcjob.logs.shapes import MUCH_BYTES
from hpcjob.logs.sources import Provider, Source, listed
from hpcjob.logs.wanted import Wanted

POLL_S = 0.4
SLOWEST_POLL_S = 0.9
"""So that a line is seen within a second."""
_SHARE_OF_CORE, _SHARE_OF_CORE_BUSY = 0.08, 0.25
_OPEN_FILES_AT_MOST = 128
_SILENT_POLLS = 8
_PIPE_BYTES = 1024 * 1024
_PIPE_CHUNK_BYTES = 64 * 1024  # from 128 KiB on each would be new memory from the system

T = TypeVar("T")


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
        kind = compression(source.path)
        if kind is None:
            return FileTail(source, hosts=self._hosts, keep_open=keep_open, wanted=self._wanted)
        if kind.startswith("UTF-16"):
            from hpcjob.logs.wide_tail import WideTail

            return WideTail(source, kind, hosts=self._hosts, keep_open=keep_open, wanted=self._wanted)
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
        self,
        count: int,
        select: Callable[[Line], Iterable[T]],
        *,
        final: bool,
        most_bytes: int | None = None,
        grouping: Grouping[T] = alone,
    ) -> Iterator[T]:
        """Give the last ``count`` items of each file that ``select`` makes of its lines, reading from the end
        backwards.

        Args:
            final: the files will not grow any more: a line that no newline ended counts too.
            most_bytes: do not look further back in a file.
            grouping: which items only repeat others, and count as one with them.
        """
        for tail in self.tails():
            yield from last_of(tail, count, select, final=final, most_bytes=most_bytes, grouping=grouping)

    def close(self) -> None:
        """Close all files."""
        for tail in self._tails.values():
            tail.close()


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

    Raises:
        InputError: a line does not end, see `hpcjob.logs.endless`.
    """
    wanted = wanted or Wanted()
    cutter = wanted.cutter(name)
    left = MUCH_BYTES
    parser = LineParser(name, hosts=set(hosts))
    with contextlib.suppress(OSError, AttributeError):  # not everywhere, and not for terminals
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    guard = EndlessGuard(name)
    while chunk := os.read(fd, _PIPE_CHUNK_BYTES):
        guard.see(chunk)
        if last is not None:
            last.append(chunk)
        left -= len(chunk)
        if left <= 0 and wanted.shapes is not None:
            wanted.shapes.sharpen()
        for number, offset, data in cutter.feed(chunk):
            yield parser.parse(offset, data, number)
    for number, offset, data in cutter.finish():
        yield parser.parse(offset, data, number)
