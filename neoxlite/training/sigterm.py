"""SIGTERM as a request: it ends a run at once while there is nothing to save, and is a flag from then on.

Imports no torch, so that it is in place before minutes of imports, rendezvous and index building. Python runs the
handler of a signal only when the main thread comes back from what it waits for in C; the interpreter's wakeup file
descriptor is written at once, and a thread reads it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from neoxlite.training.outcome import STOPPED, Outcome, Progress, write_if_possible


class Sigterm:
    """In force inside a ``with``, in the main thread; in another one there is no handler and `received` stays False.

    Args:
        outcome_file: where a run that ends at once says so; None on ranks other than 0.
        progress: how far the run has come.
        before_end: called before the process ends at once.
    """

    def __init__(
        self, outcome_file: Path | None, progress: Progress, before_end: Callable[[], None] = lambda: None
    ) -> None:
        self._outcome_file = outcome_file
        self._progress = progress
        self._before_end = before_end
        self._lock = threading.Lock()
        self._at_once = True
        self._previous: tuple[Any, int] | None = None
        self.received = False

    def __enter__(self) -> Sigterm:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        handler = signal.signal(signal.SIGTERM, self._on_signal)
        self._previous = handler, signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(self._reader,), name="sigterm", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._previous is None:
            return
        with self._lock:
            self._at_once = False
        handler, descriptor = self._previous
        signal.set_wakeup_fd(descriptor)
        signal.signal(signal.SIGTERM, handler)
        self._writer.close()  # which ends the thread

    def only_flag(self) -> None:
        """From now on SIGTERM sets `received`, and the loop sees to the end."""
        with self._lock:
            self._at_once = False

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self.received = True

    def _watch(self, reader: socket.socket) -> None:
        with reader:
            while numbers := reader.recv(64):
                with self._lock:
                    if self._at_once and signal.SIGTERM in numbers:
                        self._end()

    def _end(self) -> None:
        progress = self._progress
        outcome = Outcome(STOPPED, progress.iteration, progress.checkpoint, "asked to end before training began")
        write_if_possible(self._outcome_file, outcome)
        self._before_end()
        print("neoxlite: asked to end before training began", file=sys.stderr, flush=True)
        # The main thread may sit in a rendezvous or a long read: no exception can reach it.
        os._exit(outcome.exit_code)
