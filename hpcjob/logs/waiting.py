"""A word on stderr while something outside, such as a scheduler, does not answer: silence would look like a hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from neoxlite.common.printable import tell

PATIENCE_S = 2.0


@contextmanager
def told_if_slow(text: str) -> Iterator[None]:
    """Say ``text`` once if what is done meanwhile takes longer than `PATIENCE_S`."""
    timer = threading.Timer(PATIENCE_S, tell, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
