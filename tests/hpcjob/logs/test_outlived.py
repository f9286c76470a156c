"""Errors that the run outlived, by their places in a file."""

from __future__ import annotations

import io

from hpcjob.logs.explain import gather_stream
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.explain.outlived import Lifetimes

ERROR = (
    "Traceback (most recent call last):\n  File 'k.py', line 1, in f\nModuleNotFoundError: No module named 'fused'\n"
)
ROW = "step: {:8d} loss: 4.0" + 60 * " " + "\n"


def test_a_run_that_goes_on_for_long() -> None:
    """A MiB of iterations is more than any buffer held when an exception ended the program; 10 kB are not."""
    short = judge(gather_stream(io.BytesIO((ERROR + "".join(map(ROW.format, range(100)))).encode()), "log"))
    assert short.code == 72
    rows = "".join(map(ROW.format, range(15_000)))
    long = judge(gather_stream(io.BytesIO((ERROR + rows).encode()), "log"))
    assert (long.code, long.last_iteration) == (0, 14_999)
    assert "No module named 'fused'" in long.others[0]
    again = judge(gather_stream(io.BytesIO((ERROR + rows + ERROR).encode()), "log"))
    assert again.code == 72


def test_ranks_whose_files_were_put_together() -> None:
    """What rank 0 printed stands below the error that ended rank 3, and came before it."""
    error = "".join(f"[rank3]: {line}\n" for line in ERROR.splitlines())
    rows = "".join(map(ROW.format, range(15_000)))
    together = judge(gather_stream(io.BytesIO((error + rows).encode()), "log"))
    assert (together.code, together.rank) == (72, 3)
    own = "".join(f"[rank3]: {line}\n" for line in rows.splitlines())
    assert judge(gather_stream(io.BytesIO((error + own).encode()), "log")).code == 0


def test_files_are_not_compared() -> None:
    """What another file tells of is earlier or later, nobody knows."""
    lifetimes = Lifetimes()
    lifetimes.error("a", "rank3", 10)
    lifetimes.finish("rank0", 1000)
    assert not lifetimes.outlived("a")
    lifetimes.finish("rank3", 5)
    assert not lifetimes.outlived("a")
    lifetimes.finish("rank3", 20)
    assert lifetimes.outlived("a")
    lifetimes.error("a", "rank4", 1)
    assert not lifetimes.outlived("a")
    assert not lifetimes.outlived("b")
