"""Drive a view: what is there now, then what comes."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from hpcjob.logs.follow import POLL_S, Follower, pause, pauses
from hpcjob.logs.lines import Line
from hpcjob.logs.output import Output
from hpcjob.logs.since import offset_since
from hpcjob.logs.views import View

T = TypeVar("T")
_TICK_S = 1.0


def show_files(
    follower: Follower,
    view: View[T],
    output: Output,
    *,
    count: int | None,
    ended: Callable[[], bool] | None = None,
    since_s: float | None = None,
) -> None:
    """Show the last ``count`` items of each file (None: all); with ``ended``, what is appended until it says so too.

    Args:
        since_s: begin where the files' times are not before this one, in seconds since the epoch.
    """
    waits, came, used_s = pauses(POLL_S), False, 0.0
    with contextlib.closing(follower):
        tails = follower.tails()
        final = ended is None or ended()
        if since_s is not None:
            for tail in tails:
                tail.seek(offset_since(tail.source.path, since_s))
        if count is None:
            _accept(view, follower.poll())
            if final:
                _accept(view, follower.finish())
        else:
            for item in follower.last(count, view.pick, final=final, grouping=view.grouping):
                view.accept(item)
        while not final:
            view.tick(final=False)
            output.flush()
            time.sleep(pause(next(waits), used_s, came=came))
            began_s = time.process_time()
            final = ended is None or ended()  # before reading: what was written until now is read below
            came = _accept(view, follower.poll())
            used_s = time.process_time() - began_s
            if came:
                waits = pauses(POLL_S)
            if final:
                _accept(view, follower.finish())
        view.tick(final=True)
        output.flush()


def show_stream(lines: Iterable[Line], view: View[T], output: Output, *, count: int | None, follow: bool) -> None:
    """Show a pipe: its last ``count`` items at its end, or with ``follow`` each as it comes."""
    if follow or count is None:
        ticked = time.monotonic()
        for line in lines:
            _accept(view, (line,))
            if follow and time.monotonic() - ticked >= _TICK_S:
                view.tick(final=False)
                ticked = time.monotonic()
            if follow:
                output.flush()
    else:
        kept: deque[T] = deque(maxlen=count)
        for line in lines:
            kept.extend(view.pick(line))
        for item in kept:
            view.accept(item)
    view.tick(final=True)
    output.flush()


def _accept(view: View[T], lines: Iterable[Line]) -> bool:
    came = False
    for line in lines:
        came = True
        for item in view.pick(line):
            view.accept(item)
    return came
