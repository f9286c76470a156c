"""A script that runs in the background, and the processes that it started, wherever they went."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE_S = 240.0
"""How long to wait for what must happen, on a machine that does much else at once."""


class Running:
    """A job that runs.

    Args:
        command, environment, folder: how it is started. mark: a text that no other process has in its environment.
    """

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path, mark: str) -> None:
        self._mark = f"TEST_MARK={mark}".encode()
        self._folder = folder
        self.script = subprocess.Popen(
            command,
            env={**environment, "TEST_MARK": mark},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def processes(self) -> dict[int, str]:
        """Return pid -> command line of all that live."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    @property
    def jobdir(self) -> Path:
        """The job folder, waited for."""
        self.wait_for(lambda: any(self._folder.glob("outputs/*/*/hostfile")), "a job folder")
        return next(self._folder.glob("outputs/*/*/hostfile")).parent

    def wait_for(self, happened: Callable[[], bool], what: str) -> None:
        """Wait until something has happened; fail with what is there when it does not."""
        end = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < end, f"no {what}; alive: {self.processes()}; log: {self.log()}"
            time.sleep(0.05)

    def log(self) -> str:
        """The job's log so far."""
        return "".join(path.read_text(errors="replace") for path in self._folder.glob("outputs/*/*/*_job.out"))

    def kill(self, words: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the one process whose command line has these words."""
        (pid,) = (pid for pid, line in self.processes().items() if words in line)
        os.kill(pid, number)

    def end(self) -> int:
        """Wait until the script has ended, and return its code."""
        self.wait_for(lambda: self.script.poll() is not None, "end")
        return self.script.wait()

    def all_gone(self) -> int:
        """Wait until the script and all its processes are gone, and return the script's code."""
        self.wait_for(lambda: self.script.poll() is not None and not self.processes(), "end")
        return self.script.wait()


@contextlib.contextmanager
def running(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[Running]:
    """Start a job; whatever is left of it at the end is killed by its pid."""
    job = Running(command, environment, folder, f"{folder}:{time.monotonic_ns()}")
    try:
        yield job
    finally:
        for pid in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.script.wait()
