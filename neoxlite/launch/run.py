"""Run the launch script to its end: its log on this terminal, signals passed on, its exit code returned."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Final

from neoxlite.common import streams
from neoxlite.data.system_errors import writing
from neoxlite.errors import NeoxliteError
from neoxlite.launch.ending import tell_why

_POLL_S: Final = 0.1
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG: Final = 1  # prctl(2): a signal to a process whose parent dies, also of SIGKILL


def make_run_folder(where: Path) -> Path:
    """Make and return the folder of a run, readable by its owner alone: ``where/TIME-PID``. Raises NeoxliteError."""
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    folder = where / f"{stamp}-{os.getpid()}"
    try:
        where.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise NeoxliteError(
            f"the folder of the run, {folder}, cannot be made: {error.strerror}",
            hint="start from a folder that can be written and that all hosts share",
        ) from error
    return folder


def run_script(script: str, folder: Path) -> int:
    """Run a launch script in ``folder`` to its end, with its log on stdout, and return its exit code.

    Why it failed is told last, on stderr: see `neoxlite.launch.ending`.

    SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 go on to it: the first asks a training to save and end, a second ends
    it at once (the last two only warn of a walltime). If this process is killed, the run is asked to end as by SIGTERM.
    A standard output that has no reader any more, or no room, does not end it: its log is in the folder.

    Raises:
        NeoxliteError: the script cannot be written.
    """
    path = folder / "launch.sh"
    with writing(path):
        path.write_text(script, encoding="utf-8")
    streams.outlive()
    with (
        _Signals() as signals,
        # A session of its own, for a Ctrl-C must not reach the ranks beside the request to save.
        subprocess.Popen(
            ["bash", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        ) as process,
    ):
        signals.go_to(process)
        log = folder / f"{process.pid}_job.out"
        _show(process, log)
        code = _code(process.wait())
    if log.exists():
        tell_why(folder, code)
    return code


def _show(process: subprocess.Popen[bytes], log: Path) -> None:
    """Copy what the script prints, and then its log, to stdout until it ends."""
    out = sys.stdout.buffer
    if process.stdout is not None:  # one line, or the reason of an early failure; the script then turns to its log
        _copy(process.stdout, out)
    while process.poll() is None and not log.exists():
        time.sleep(_POLL_S)
    if not log.exists():
        return
    with log.open("rb") as file:
        ended = False
        while not ended:
            ended = process.poll() is not None  # before the reading, so that what was written until then is read
            _copy(file, out)
            if not ended:
                time.sleep(_POLL_S)


def _copy(source: IO[bytes], out: IO[bytes]) -> None:
    while block := source.read(1 << 16):
        out.write(block)
        out.flush()


class _Signals:
    """Passes signals on to a process while the block runs; those that come before there is one, when there is."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        self._before = {number: signal.signal(number, self._pass_on) for number in _PASSED_ON}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def go_to(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        while self._waiting:
            self._pass_on(self._waiting.pop(0), None)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            self._waiting.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)


def _code(returned: int) -> int:
    """Return an exit code; a death by a signal is 128 and its number, as shells have it."""
    return returned if returned >= 0 else 128 - returned


def _end_with_parent() -> None:
    """In the script's process, before it starts: be asked to end when the parent is gone."""
    with contextlib.suppress(OSError, AttributeError):  # other systems than Linux have no prctl
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
