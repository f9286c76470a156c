"""Memory that goes back to the system when a block of weights is done with."""

from __future__ import annotations

import contextlib
import ctypes

_M_MMAP_THRESHOLD = -3  # malloc.h of glibc
_FROM_BYTES = 1 << 20


def return_freed_blocks() -> None:
    """Let glibc map every large allocation by itself, so that freeing it frees it.

    Blocks of one size that torch allocates with alignment do not fit into the holes of their predecessors: without this
    the heap grows by every block. Other C libraries have no such switch, and go without.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _FROM_BYTES)
