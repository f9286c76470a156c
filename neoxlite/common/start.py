"""How a command starts and ends. Imports next to nothing, so that it is there as soon as Python is.

A command is a process of its own, which Ctrl-C ends with 130 from its first line on: also while it imports what it is
made of, and while Python ends. A `KeyboardInterrupt` in there would be told as a traceback, or as "Exception ignored".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from signal import SIGINT, default_int_handler, getsignal, signal

_INTERRUPTED = 130


def start(load: Callable[[], Callable[[list[str] | None], int]], argv: list[str] | None) -> int:
    """Run a command line and return its exit code.

    Args:
        load: imports the command and returns what runs it.
        argv: None: this process's own command line, and the process ends after it.
    """
    is_interruptible = argv is None and getsignal(SIGINT) is default_int_handler
    if is_interruptible:
        signal(SIGINT, _leave)
    run = load()
    try:
        if is_interruptible:
            signal(SIGINT, default_int_handler)
        return run(argv)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except FileNotFoundError as error:
        if error.filename is not None:  # only os.getcwd() names none
            raise
        from neoxlite.common.printable import tell

        tell("the current folder is gone\n        cd to a folder that exists")
        return 1
    finally:
        if is_interruptible:
            signal(SIGINT, _leave)


def _leave(*_: object) -> None:
    """End the process at once: nothing has been written yet, or all has."""
    os._exit(_INTERRUPTED)
