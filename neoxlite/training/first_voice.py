"""One message where all ranks fail alike. Imports no torch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from neoxlite.errors import NeoxliteError

_FIRST_S: Final = 2.0


@contextlib.contextmanager
def rank_0_speaks_first(rank: int) -> Iterator[None]:
    """Hold back an error of another rank for a moment.

    Most mistakes, such as a wrong key, are found by all ranks at once. Launchers end the others as soon as one has
    failed, so that only rank 0's message is seen; an error that it does not have comes through a little later.
    """
    try:
        yield
    except NeoxliteError:
        if rank > 0:
            time.sleep(_FIRST_S)
        raise
