"""Whatever is in a log, reading it neither fails nor prints control characters."""

from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjob.logs.explain import gather_stream, lines_of
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.failures import FailureReport
from hpcjob.logs.lines import LineParser, Splitter
from hpcjob.logs.metrics import Metrics
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.output import Output
from hpcjob.logs.rulebook import RULES, read
from hpcjob.logs.views import LinesView, LossView, ReportView, View

from .conftest import GOLDEN

_GOLDEN = json.loads(GOLDEN.read_text())
_KNOWN = [
    *(case["line"] for case in _GOLDEN["iteration_line"]),
    *(case["text"] for case in _GOLDEN["validation"]),
    *(case["lines"][0] for case in _GOLDEN["steps_line"]),
    *(example for path in sorted(RULES.glob("*.yml")) for rule in read(path) for example in rule.match),
    "Traceback (most recent call last):",
    '  File "x.py", line 1, in f',
    "ValueError: x",
    "Root Cause (first observed failure):",
    "  rank      : 3 (local_rank: 3)",
    "  exitcode  : -99999 (pid: 1)",
    "  traceback : x",
]
_PARTS = st.one_of(
    st.sampled_from(_KNOWN).map(str.encode),
    st.sampled_from(
        [
            b"\n",
            b"\r",
            b"|",
            b": ",
            b"nan",
            b"inf",
            b"-1",
            b"1e999",
            b"9" * 400,
            b"[rank3]: ",
            b"node01: ",
            b"\x1b[2J",
            b"\0",
        ]
    ),
    st.binary(max_size=20),
)


@given(
    data=st.lists(st.tuples(_PARTS, st.integers(0, 40), st.integers(0, 400)), max_size=25).map(
        lambda parts: b"".join(part[start : start + length] for part, start, length in parts)
    )
)
@settings(max_examples=150, deadline=None)
def test_any_bytes(data: bytes) -> None:
    """Pieces of known lines put together at random, numbers out of range, raw bytes: in all views and as JSON."""
    for as_json in (False, True):
        out = io.StringIO()
        output = Output(out, json=as_json)
        views: list[View[Any]] = [
            LinesView(output, headings=True),
            LossView(output, Metrics(None)),
            ReportView(output, NcclReport(), "nothing"),
            ReportView(output, FailureReport(), "nothing"),
        ]
        splitter, parser = Splitter(), LineParser("log")
        lines = [parser.parse(*found) for found in splitter.feed(data) + splitter.finish()]
        for view in views:
            for line in lines:
                for item in view.pick(line):
                    view.accept(item)
            view.tick(final=True)
        verdict = judge(gather_stream(io.BytesIO(data), "log"))
        if as_json:
            output.event(verdict)
        else:
            for role, text in lines_of(verdict):
                output.text(text, role)
        text = out.getvalue()
        assert not any(ord(char) < 32 and char not in "\n\t" for char in text)
        if as_json:
            for row in filter(None, text.split("\n")):
                json.loads(row)
