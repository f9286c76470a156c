"""One message where all ranks fail alike, and one at the end of torchrun's page. Imports no torch."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from neoxlite.common.files import write_whole
from neoxlite.errors import NeoxliteError
from neoxlite.training.outcome import one_line

_FIRST_S: Final = 5.0
"""Rank 0 has ended by then, and the launcher has seen it: torch alone takes a second or two to be put away."""


@contextlib.contextmanager
def rank_0_speaks_first(rank: int) -> Iterator[None]:
    """Hold back an error of another rank for a moment.

    Most mistakes, such as a wrong key, are found by all ranks at once. Launchers end the others as soon as one has
    failed, so that only rank 0's message is seen; an error that it does not have comes through a little later.
    """
    try:
        yield
    except NeoxliteError as error:
        at_s = time.time()
        if rank > 0:
            time.sleep(_FIRST_S)
        if not _is_of_another_rank(error):
            _tell_torchrun(f"neoxlite: {error}", at_s)
        raise
    except Exception as error:
        _tell_torchrun(one_line(error), time.time())
        raise


def named_rank(environ: Mapping[str, str]) -> int:
    """Return the rank that a launcher's variable names, before anything is known of its world; 0 where none does."""
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        text = environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return 0


def _is_of_another_rank(error: NeoxliteError) -> bool:
    module = sys.modules.get("neoxlite.parallel.distributed")  # imported here it would bring torch
    return module is not None and isinstance(error, module.PeerLostError)


def _tell_torchrun(text: str, at_s: float) -> None:
    """Leave an error where torchrun looks for it: its page ends with that of the rank that failed first, by the clock.

    Its format: torch/distributed/elastic/multiprocessing/errors/error_handler.py, record_exception.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        told = {"message": {"message": text, "extraInfo": {"timestamp": str(int(at_s))}}}
        with contextlib.suppress(OSError):
            write_whole(Path(path), json.dumps(told))
