"""Signals that ask for an end as requests: they end a run at once while there is nothing to save, and are a flag later.

Imports no torch, so that it is in place before minutes of imports, rendezvous and index building. Python runs the
handler of a signal only when the main thread comes back from what it waits for in C; the interpreter's wakeup file
descriptor is written at once, and a thread reads it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from neoxlite.training.outcome import FAILED, STOPPED, Outcome, Progress, write_if_possible

_OTHERS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""A terminal that is closed, and what schedulers send before the end (Slurm's --signal, Grid Engine's -notify)."""
_INTERRUPTED: Final = 128 + signal.SIGINT
_ONE_PRESS_S: Final = 0.25
"""Programs that pass a Ctrl-C on to a group of processes may send it to one of them twice."""


class EndSignals:
    """In force inside a ``with``, in the main thread; in another one there is no handler and `received` stays False.

    A second Ctrl-C ends the process at once. A signal that is ignored stays ignored: shells do it with SIGINT for what
    they run in the background, nohup with SIGHUP. SIGTERM never is.

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
        self._notice: str | None = None
        self._interrupted_s: float | None = None
        self._handlers: dict[int, Any] = {}
        self._descriptor = -1
        self.received = False

    def __enter__(self) -> EndSignals:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        others = (signal.SIGINT, *_OTHERS)
        numbers = [signal.SIGTERM, *(number for number in others if signal.getsignal(number) != signal.SIG_IGN)]
        self._handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        self._descriptor = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(self._reader,), name="signals", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._handlers:
            return
        with self._lock:
            self._at_once = False
        signal.set_wakeup_fd(self._descriptor)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._writer.close()  # which ends the thread

    def only_flag(self, notice: str | None = None) -> None:
        """From now on a signal sets `received`, and the loop sees to the end; ``notice`` is told at a Ctrl-C."""
        with self._lock:
            self._at_once = False
            self._notice = notice

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self.received = True

    def _watch(self, reader: socket.socket) -> None:
        with reader:
            while numbers := reader.recv(64):
                with self._lock:
                    if self._at_once and not self._handlers.keys().isdisjoint(numbers):
                        self._end(STOPPED, "asked to end before training began")
                    elif signal.SIGINT in numbers:
                        self._interrupted()

    def _interrupted(self) -> None:
        now = time.monotonic()
        if self._interrupted_s is None:
            self._interrupted_s = now
            if self._notice is not None:
                _tell(self._notice)
        elif now - self._interrupted_s > _ONE_PRESS_S:
            self._end(FAILED, "ended at once by a second Ctrl-C, without a save", _INTERRUPTED)

    def _end(self, kind: str, message: str, code: int | None = None) -> None:
        outcome = Outcome(kind, self._progress.iteration, self._progress.checkpoint, message)
        write_if_possible(self._outcome_file, outcome)
        self._before_end()
        _tell(message)
        # The main thread may sit in a rendezvous or a long read: no exception can reach it.
        os._exit(outcome.exit_code if code is None else code)


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that is gone must not keep a run from its end
        print(f"neoxlite: {text}", file=sys.stderr, flush=True)
