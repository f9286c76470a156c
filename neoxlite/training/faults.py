"""The place where a fatal signal ends a process. Imports no torch."""

from __future__ import annotations

import contextlib
import faulthandler
import signal


def dump_at_faults() -> None:
    """Have a fatal signal write the stack of its thread to stderr, unless that is set up already.

    A mapped data file that is cut, or whose file system goes away, is SIGBUS for who reads it, without a word. SIGABRT
    is left alone: who aborts (NCCL, a failed assertion) has said why, and the reason should stay the last word.
    """
    if faulthandler.is_enabled():
        return
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):  # a stderr that is no file
        faulthandler.enable(all_threads=False)
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
