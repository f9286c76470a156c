"""Drive the digest: the beginning and the end of each file, or all of it, then what comes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

from hpcjob.logs.digest import Digest
from hpcjob.logs.follow import POLL_S, FileTail, Follower, last_of, pause, pauses
from hpcjob.logs.lines import Line
from hpcjob.logs.output import Output
from hpcjob.logs.since import offset_since

HEAD_BYTES = 4 * 1024 * 1024
"""Of a file's beginning, where NCCL starts and arguments are listed."""
TAIL_BYTES = 32 * 1024 * 1024
"""Of a file's end; shared by the files where they are many."""
_TICK_S = 0.5
_LEAST_BYTES = 256 * 1024
_LOOK_BACK_BYTES = 1024 * 1024 * 1024


def show_digest(
    follower: Follower,
    digest: Digest,
    output: Output,
    *,
    count: int | None,
    ended: Callable[[], bool] | None = None,
    since_s: float | None = None,
) -> list[str]:
    """Show what the files hold, and with ``ended`` what is appended until it says so.

    Args:
        count: rows of the table; None: all, and all of every file is read.
        since_s: begin at this time, in seconds since the epoch.

    Returns:
        The files of which only the beginning and the end were read.
    """
    with contextlib.closing(follower):
        tails = follower.tails()
        final = ended is None or ended()
        tails = list(dict.fromkeys([*tails, *follower.tails()]))
        digest.collect(count)
        partly = [
            str(tail.source.path)
            for tail in tails
            if not _catch_up(tail, digest, whole=count is None, share=len(tails), since_s=since_s)
        ]
        if final:
            _finish(follower, digest)
        digest.caught_up()
        try:
            if not final and ended is not None:
                _follow(follower, digest, output, ended)
            digest.tick(final=True)
        finally:
            output.settle()
    return partly


def show_digest_of(lines: Iterable[Line], digest: Digest, output: Output, *, count: int | None, follow: bool) -> None:
    """Show a stream: its end, or with ``follow`` each line as it comes."""
    digest.collect(count)
    if follow:
        digest.caught_up()
    ticked = time.monotonic()
    try:
        for line in lines:
            digest.read(line)
            if follow and time.monotonic() - ticked >= _TICK_S:
                digest.tick(final=False)
                output.flush()
                ticked = time.monotonic()
        if not follow:
            digest.caught_up()
        digest.tick(final=True)
    finally:
        output.settle()


def _catch_up(tail: FileTail, digest: Digest, *, whole: bool, share: int, since_s: float | None) -> bool:
    """Read a file as far as it goes; return whether all of it was read."""
    size = tail.size()
    head = min(HEAD_BYTES, max(HEAD_BYTES * 4 // share, _LEAST_BYTES))
    end = min(TAIL_BYTES, max(TAIL_BYTES * 4 // share, _LEAST_BYTES))
    if since_s is not None:
        start = offset_since(tail.source.path, since_s)
        for line in tail.poll(min(head, start)):
            digest.learn(line)
        tail.seek(start)
    elif not whole and size > head + end:
        for line in tail.poll(head):
            digest.read(line, rows=False)
        tail.seek(size - end)
    before = digest.rows
    for line in tail.poll():
        digest.read(line)
    everything = whole or since_s is not None or size <= head + end
    if not everything and digest.rows == before and tail.source.rank is None:
        _look_back(tail, digest)
    return everything


def _look_back(tail: FileTail, digest: Digest) -> None:
    """Look for iterations further from the end, where what ended the job has flooded the log."""
    other = FileTail(tail.source, wanted=digest.wanted_for_rows())
    with contextlib.closing(other):
        for event in last_of(other, digest.default_count, digest.rows_of, final=False, most_bytes=_LOOK_BACK_BYTES):
            digest.row(event)


def _finish(follower: Follower, digest: Digest) -> None:
    for line in follower.finish():
        digest.read(line)


def _follow(follower: Follower, digest: Digest, output: Output, ended: Callable[[], bool]) -> None:
    waits = pauses(POLL_S)
    final = False
    while not final:
        digest.tick(final=False)
        output.flush()
        time.sleep(next(waits))
        began_s = time.process_time()
        final = ended()  # before reading: what was written until now is read below
        came = False
        for tail in follower.tails():
            told = False
            for line in tail.poll():
                came = True
                if tail.restarted and not told:
                    told = True
                    digest.restarted(str(tail.source.path))
                digest.read(line)
        if came:
            waits = pauses(POLL_S)
        else:
            time.sleep(pause(0, time.process_time() - began_s))
        if final:
            _finish(follower, digest)
