"""The watchdog's line that a terminal, a logger or mpirun has cut: read as the one that it was."""

from __future__ import annotations

import io

import pytest

from hpcjob.logs.errors import ErrorReader
from hpcjob.logs.events import Finding
from hpcjob.logs.explain import gather_stream
from hpcjob.logs.explain.judge import judge

from .conftest import line

START = "[rank{0}]:[E424 01:11:21.160832730 ProcessGroupNCCL.cpp:629] [Rank {0}] "
WORDS = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType=BROADCAST, NumelIn=112, NumelOut=112, "
    "Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out."
)
WHOLE = START + WORDS


def read(*texts: str) -> list[Finding]:
    """Return what the lines say."""
    reader = ErrorReader()
    events = [event for text in texts for event in reader.read(line(text))]
    events += reader.finish()
    assert not reader.unfinished
    return [event for event in events if isinstance(event, Finding)]


@pytest.mark.parametrize("width", range(len(START) + 40, len(WHOLE) - 30))
@pytest.mark.parametrize("tag", ["", "[1,2]<stderr>:"])
def test_a_line_that_was_cut_anywhere(width: int, tag: str) -> None:
    """By a terminal in a word, by a logger at a space, which is then gone; mpirun writes its tag once more."""
    whole = WHOLE.format(2, 4)
    (found,) = read(tag + whole[:width].rstrip(), tag + whole[width:].lstrip())
    (expected,) = read(tag + whole)
    assert (found.rule, found.rank, found.fields) == ("watchdog-timeout", 2, expected.fields)
    assert found.fields["seq"] == "4"


def test_three_parts_and_ranks_one_after_the_other() -> None:
    """A narrow terminal makes three; the parts of two ranks may come in turn."""
    one, two = WHOLE.format(2, 4), WHOLE.format(3, 5)
    assert [found.fields["seq"] for found in read(one[:140], one[140:170], one[170:])] == ["4"]
    tags = [f"[1,{rank}]<stderr>:" for rank in (2, 3)]
    found = read(tags[0] + one[:150], tags[1] + two[:150], tags[0] + one[150:], tags[1] + two[150:])
    assert [(one.rank, one.fields["seq"]) for one in found] == [(2, "4"), (3, "5")]


def test_a_line_whose_rest_does_not_come() -> None:
    """What there is of it is told, and the lines after it are read as they are."""
    begun = WHOLE.format(2, 4)[:140]
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert [found.rule for found in read(begun)] == ["watchdog-timeout-cut"]
    rules = [found.rule for found in read(begun, error, "one", "two", "three")]
    assert rules == ["watchdog-timeout-cut", read(error)[0].rule]


def test_the_verdict_of_a_whole_log() -> None:
    """The rank that stands behind is found by numbers that stood in second halves."""
    lines = [WHOLE.format(rank, 4 if rank == 1 else 5) for rank in range(4)]
    log = "".join(f"[1,{n}]<stderr>:{text[:150]}\n[1,{n}]<stderr>:{text[150:]}\n" for n, text in enumerate(lines))
    found = judge(gather_stream(io.BytesIO(log.encode()), "log"))
    assert (found.code, found.rank, found.cause) == (77, 1, "rank 1 stands at collective 4, the others at 5")
