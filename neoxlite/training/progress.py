"""A line on a terminal that says how far a run is and when it will be done; nothing where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class ProgressLine:
    """One line on ``stream``, rewritten in place at most ten times a second."""

    def __init__(self, total: int, start: int, *, stream: TextIO | None = None):
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty()
        self._total = total
        self._start = start
        self._began = self._last = time.monotonic()
        self._visible = False

    def update(self, iteration: int, text: str = "") -> None:
        """Show ``iteration`` of the total, ``text`` and the time left."""
        now = time.monotonic()
        if not self._shown or (now - self._last < 0.1 and iteration < self._total):
            return
        self._last = now
        done = max(1, iteration - self._start)
        left_s = (now - self._began) / done * (self._total - iteration)
        self._stream.write(f"\r\x1b[Kiteration {iteration}/{self._total}{text}  {clock(left_s)} left")
        self._stream.flush()
        self._visible = True

    def clear(self) -> None:
        """Take the line away, so that a log line can be printed."""
        if self._visible:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._visible = False


def clock(seconds: float) -> str:
    """Return a duration as ``h:mm:ss``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}"
