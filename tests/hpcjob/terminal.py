"""A command in a terminal, and someone who types into it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def type_into(
    argv: Sequence[str],
    lines: Sequence[str],
    *,
    prompt: str = "(hpcjob ",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 240,
) -> tuple[int, str]:
    """Run ``argv`` in a terminal of its own and type a line at each prompt; return its exit code and what was shown.

    Args:
        env: its whole environment; None: this process's.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 1000, 0, 0))  # no line is cut
            if cwd is not None:
                os.chdir(cwd)
            os.execvpe(argv[0], list(argv), {"TERM": "dumb", **(os.environ if env is None else env)})
        finally:
            os._exit(127)
    shown, typed, deadline = b"", 0, time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 0.2)[0]:
                continue
            try:
                part = os.read(terminal, 65536)
            except OSError:  # of a terminal whose last process has ended
                part = b""
            if not part:
                _, status = os.waitpid(pid, 0)
                return os.waitstatus_to_exitcode(status), shown.decode(errors="replace").replace("\r\n", "\n")
            shown += part
            if typed < len(lines) and shown.count(prompt.encode()) > typed:
                os.write(terminal, f"{lines[typed]}\n".encode())
                typed += 1
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError(f"no end in {timeout_s:g} s: {shown.decode(errors='replace')}")
    finally:
        os.close(terminal)
