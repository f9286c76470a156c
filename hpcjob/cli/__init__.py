"""The start and the end of the ``hpcjob`` command; what it consists of is `hpcjob.cli.group`.

The command is a process of its own, which Ctrl-C ends with 130 from its first line on: also while it imports what it is
made of, and while Python ends. A `KeyboardInterrupt` in there would be told as a traceback, or as "Exception ignored".
This module itself imports next to nothing, so that it is there as soon as Python is.
"""

from __future__ import annotations

import os
from signal import SIGINT, default_int_handler, getsignal, signal

_INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: None: this process's own command line, and the process ends after it.
    """
    is_interruptible = argv is None and getsignal(SIGINT) is default_int_handler
    if is_interruptible:
        signal(SIGINT, _leave)
    from hpcjob.cli.group import EXTRAS, cli
    from neoxlite.common.cli import run
    from neoxlite.common.printable import tell

    try:
        if is_interruptible:
            signal(SIGINT, default_int_handler)
        return run(cli, "hpcjob", argv, extras=EXTRAS, files_are_the_users=True)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except FileNotFoundError as error:
        if error.filename is not None:  # only os.getcwd() names none
            raise
        tell("the current folder is gone\n        cd to a folder that exists")
        return 1
    finally:
        if is_interruptible:
            signal(SIGINT, _leave)


def _leave(*_: object) -> None:
    """End the process at once: nothing has been written yet, or all has."""
    os._exit(_INTERRUPTED)
