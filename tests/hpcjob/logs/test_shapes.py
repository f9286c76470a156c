"""Every documented shape of a log line is understood: number, what it is, what it tells (``shapes.tsv``).

Expected values are the numbers and names that stand in the line, and what the collection of shapes says of it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hpcjob.logs.errors import ErrorReader
from hpcjob.logs.events import Event, Finding, ProcessEnd
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.parse import parse

from .conftest import line

ROWS = [
    row.split("\t")
    for row in (Path(__file__).parent / "shapes.tsv").read_text(encoding="utf-8").splitlines()
    if row and not row.startswith("#")
]
SHAPES = 100
TORCHRUN_TABLE = 54


def events_of(kind: str, text: str) -> list[Event]:
    """Return the events of a kind that a line makes, by the reader that is asked for them."""
    parsed = line(text)
    if kind in ("nccl", "host", "communicator"):
        report = NcclReport(listening=True)
        found: list[Event] = list(report.read(parsed))
        return found if kind == "nccl" else list(report.summary())
    reader = ErrorReader()
    return [*parse(parsed), *reader.read(parsed), *reader.finish()]


@pytest.mark.parametrize(("number", "kind", "tells", "text"), ROWS, ids=[f"{row[0]}-{row[3][:40]}" for row in ROWS])
def test_shape(number: str, kind: str, tells: str, text: str) -> None:
    """The event is of the kind, and has the values; in a sentence (``say~``, ``fix~``) the words stand."""
    name = {"nccl": "finding", "host": "nccl_host"}.get(kind, kind)
    found = [event for event in events_of(kind, text) if json.loads(msgspec.json.encode(event))["event"] == name]
    assert found, f"shape {number} is not understood"
    for wanted in re.split(r" (?=[a-z_]+[=~])", tells):
        attribute, operator, value = re.split(r"([=~])", wanted, maxsplit=1)
        values = [told(event, attribute) for event in found]
        if operator == "~":
            assert any(value in one for one in values if one), f"{attribute} lacks {value!r}: {values}"
        else:
            assert value in [str(one).replace(", ", ",").replace(": ", ":").replace(" ", "_") for one in values], wanted


def told(event: Event, name: str) -> Any:
    """Return a field of an event, or what a rule took from its line."""
    if isinstance(event, Finding) and name in event.fields:
        return event.fields[name]
    return getattr(event, name)


def test_all_shapes_are_there() -> None:
    """None of the collection is left out; torchrun's table, which has many lines, has a test of its own."""
    assert len({int(row[0]) for row in ROWS} | {TORCHRUN_TABLE}) == SHAPES


def test_torchrun_table() -> None:
    """Shape 54: rank 3 on node01 was killed by signal 9, and is the root cause."""
    text = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_10:00:00
  host      : node01
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 1234)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 1234"""
    reader = ErrorReader()
    ends = [event for part in text.splitlines() for event in reader.read(line(part)) if isinstance(event, ProcessEnd)]
    assert [(end.rank, end.host, end.exit_code, end.root_cause) for end in ends] == [(3, "node01", -9, True)]
