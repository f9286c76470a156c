"""The last words of a run that failed: why, by hpcjob's rules, below whatever its launcher has printed."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Final

from neoxlite.common.printable import message
from neoxlite.exitcodes import SAVED_FOR_WALLTIME, STOPPED_ON_REQUEST

_NO_FAILURES: Final = (0, SAVED_FOR_WALLTIME, STOPPED_ON_REQUEST, 130)


def tell_why(folder: Path, code: int) -> None:
    """Print to stderr why the run whose logs are in ``folder`` ended with ``code``; nothing if it has not failed.

    What one rank alone has found stands in that rank's log, and in that of rank 0 only that others are gone.
    """
    if code in _NO_FAILURES:
        return
    lines = [f"neoxlite launch: the run ended with code {code}; its logs: {folder}", *_explained(folder)]
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        print(*map(message, lines), sep="\n", file=sys.stderr, flush=True)


def _explained(folder: Path) -> list[str]:
    """Return the lines of ``hpcjob explain``, or the command where it fails."""
    try:
        from hpcjob.logs.explain.command import explained
        from hpcjob.logs.explain.words import lines_of

        verdict = explained([str(folder)])
        # Not those who only followed, and its own exit code, which is not the run's.
        told = [] if verdict is None else [text for role, text in lines_of(verdict) if role != "follower"][:-1]
    except (Exception, KeyboardInterrupt) as error:  # the run's own exit code matters more
        return [f"why: hpcjob explain {folder} ({type(error).__name__} in {__name__})"]
    return told
