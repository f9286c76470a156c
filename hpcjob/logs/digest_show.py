"""Drive the digest: the beginning and the end of each file, or all of it, then what comes."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from hpcjob.logs.digest import PLAIN_LINES, Digest
from hpcjob.logs.file_tail import FileTail, last_of
from hpcjob.logs.follow import POLL_S, Follower, pause, pauses, read_stream
from hpcjob.logs.lines import Line, LineParser, Splitter
from hpcjob.logs.output import Output
from hpcjob.logs.since import offset_since

HEAD_BYTES = 2 * 1024 * 1024
"""Of a file's beginning, where NCCL starts and arguments are listed."""
TAIL_BYTES = 16 * 1024 * 1024
"""Of a file's end; shared by the files where they are many."""
_TICK_S = 0.5
_LEAST_BYTES = 256 * 1024
_LINE_BYTES = 1024
_LOOK_BACK_BYTES = 1024 * 1024 * 1024


def show_digest(
    follower: Follower,
    digest: Digest,
    output: Output,
    *,
    count: int | None,
    ended: Callable[[], bool] | None = None,
    plain: int = PLAIN_LINES,
    since_s: float | None = None,
) -> list[str]:
    """Show what the files hold, and with ``ended`` what is appended until it says so.

    Args:
        count: rows of the table; None: all, and all of every file is read.
        plain: lines of each file that are shown as they are if there is no iteration.
        since_s: begin at this time, in seconds since the epoch.

    Returns:
        The files of which only the beginning and the end were read.
    """
    with contextlib.closing(follower):
        first = follower.tails()
        final = ended is None or ended()
        tails = list(dict.fromkeys([*first, *follower.tails()]))
        whole = count is None
        if not whole:
            digest.collect()
        read = [_catch_up(tail, digest, whole=whole, share=len(tails), since_s=since_s) for tail in tails]
        partly = [str(tail.source.path) for tail, everything in zip(tails, read, strict=True) if not everything]
        if count is not None:
            _rows(first, digest, count, final=final)
            digest.announce()
            _rows(tails[len(first) :], digest, count, final=final)
        digest.announce()
        if final:
            _finish(follower, digest)
        digest.caught_up(_plain(tails, digest, plain, final=final) if digest.wants_plain else ())
        try:
            if not final and ended is not None:
                _follow(follower, digest, output, ended)
            digest.tick(final=True)
        finally:
            output.settle()
    return partly


def show_digest_of(pipe: tuple[int, str], digest: Digest, output: Output, *, count: int | None, follow: bool) -> None:
    """Show a pipe (its descriptor and name): its end, or with ``follow`` each line as it comes."""
    last: deque[bytes] = deque(maxlen=8)
    lines = read_stream(*pipe, wanted=digest.wanted(rows=True), last=last)
    if count is not None:
        digest.collect(most=count)
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
            digest.caught_up(_last_lines(last, pipe[1], digest) if digest.wants_plain else ())
        digest.tick(final=True)
    finally:
        output.settle()


def _catch_up(tail: FileTail, digest: Digest, *, whole: bool, share: int, since_s: float | None) -> bool:
    """Read a file as far as it goes, without its rows unless all are wanted; return whether all of it was read."""
    size = tail.size()
    head = min(HEAD_BYTES, max(HEAD_BYTES * 4 // share, _LEAST_BYTES))
    end = min(TAIL_BYTES, max(TAIL_BYTES * 4 // share, _LEAST_BYTES))
    everything = whole or since_s is not None or size <= head + end
    if since_s is not None:
        start = offset_since(tail.source.path, since_s)
        for line in tail.poll(min(head, start)):
            digest.learn(line)
        tail.seek(start)
    elif not everything:
        for line in tail.poll(head):
            digest.read(line, rows=False)
        tail.seek(size - end)
    for line in tail.poll():
        digest.read(line, rows=whole)
    for line in tail.put_off():
        digest.read(line, rows=whole)
    return everything


def _rows(tails: list[FileTail], digest: Digest, count: int, *, final: bool) -> None:
    """Look for the last rows of each file that tells of iterations; of none, further from the end of the main ones:
    what ended the job may have flooded the log."""
    wanted = digest.wanted_for_rows()
    for tail in tails:
        source = tail.source
        if digest.tellers and str(source.path) not in digest.tellers:
            continue
        if not digest.tellers and source.rank is not None:
            continue
        other = type(tail)(source, wanted=wanted)
        with contextlib.closing(other):
            last = last_of(
                other, count, digest.rows_of, final=final, most_bytes=_LOOK_BACK_BYTES, grouping=digest.grouping
            )
            for event in last:
                digest.row(event)


def _last_lines(chunks: Iterable[bytes], name: str, digest: Digest) -> list[Line]:
    splitter, parser = Splitter(), LineParser(name)
    found = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.finish()
    lines = (parser.parse(offset, data) for offset, data in found[-100 * PLAIN_LINES :])
    return [line for line in lines if digest.is_plain(line)][-PLAIN_LINES:]


def _plain(tails: list[FileTail], digest: Digest, count: int, *, final: bool) -> Iterator[Line]:
    """Give the last lines of a log that tells nothing better."""
    for tail in tails:
        other = type(tail)(tail.source)
        with contextlib.closing(other):
            yield from last_of(
                other,
                count,
                lambda line: (line,) if digest.is_plain(line) else (),
                final=final,
                most_bytes=max(_LEAST_BYTES, count * _LINE_BYTES),
            )


def _finish(follower: Follower, digest: Digest) -> None:
    for line in follower.finish():
        digest.read(line)


def _follow(follower: Follower, digest: Digest, output: Output, ended: Callable[[], bool]) -> None:
    waits, came, used_s = pauses(POLL_S), False, 0.0
    known = set(follower.tails())
    final = False
    while not final:
        digest.tick(final=False)
        output.flush()
        time.sleep(pause(next(waits), used_s, came=came))
        began_s = time.process_time()
        final = ended()  # before reading: what was written until now is read below
        came = False
        for tail in follower.tails():
            if tail not in known:
                digest.announce()
                known.add(tail)
            told = False
            for line in tail.poll():
                came = True
                if tail.restarted and not told:
                    told = True
                    digest.restarted(str(tail.source.path))
                digest.read(line)
            if (bar := tail.unfinished()) is not None:
                digest.glimpse(bar)
        used_s = time.process_time() - began_s
        if came:
            waits = pauses(POLL_S)
        if final:
            _finish(follower, digest)
