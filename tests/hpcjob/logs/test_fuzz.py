"""Whatever is in a log, reading it neither fails nor prints control characters."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjob.cli import main
from hpcjob.logs import endless
from hpcjob.logs.digest import Digest
from hpcjob.logs.explain import gather_stream, lines_of
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.failures import FailureReport
from hpcjob.logs.file_tail import FileTail
from hpcjob.logs.lines import LineParser, Splitter
from hpcjob.logs.metrics import Metrics
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.output import Output
from hpcjob.logs.progress import Progress
from hpcjob.logs.report_view import ReportView
from hpcjob.logs.rulebook import RULES, read
from hpcjob.logs.scan import Scanner
from hpcjob.logs.sources import Source
from hpcjob.logs.views import LinesView, LossView, View

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


_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "truncate", "rewrite", "replace", "remove", "hole"]),
        st.lists(st.tuples(_PARTS, st.integers(0, 40), st.integers(0, 400)), max_size=6).map(
            lambda parts: b"".join(part[start : start + length] for part, start, length in parts)
        ),
    ),
    max_size=12,
)


@given(operations=_OPERATIONS, by_shape=st.booleans())
@settings(max_examples=30, deadline=None)
def test_whatever_happens_to_a_file_that_is_followed(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, bytes]], by_shape: bool
) -> None:
    """Appended to, cut, written anew, replaced, removed, with holes: no error, and what comes last is read."""
    path = tmp_path_factory.mktemp("fuzz") / "log"
    out = io.StringIO()
    output = Output(out)
    digest = Digest(output, LossView(output, Metrics(None)), FailureReport(), Progress(), main=lambda _: True)
    tail = FileTail(Source(path), wanted=digest.wanted(rows=True) if by_shape else None)
    seen: list[str] = []
    for operation, data in [*operations, ("append", b"\nslurmstepd: error: the very last line\n")]:
        happen(path, operation, data)
        for found in tail.poll():
            digest.read(found)
            seen.append(found.text)
        digest.tick(final=False)
    for found in tail.finish():
        digest.read(found)
    digest.tick(final=True)
    tail.close()
    if not by_shape:
        assert seen[-1].endswith("the very last line")
    assert not any(ord(char) < 32 and char not in "\n\t" for char in out.getvalue())


def happen(path: Path, operation: str, data: bytes) -> None:
    """Do one thing to a log file that its reader has not been told of."""
    if operation == "replace":
        (path.parent / "new").write_bytes(data)
        (path.parent / "new").replace(path)
    elif operation == "remove":
        path.unlink(missing_ok=True)
    elif operation == "rewrite":
        path.write_bytes(data)
    elif operation == "truncate" and path.exists():
        os.truncate(path, min(len(data), path.stat().st_size))
    elif operation == "hole" and path.exists():
        os.truncate(path, path.stat().st_size + 600_000)
    else:
        with path.open("ab") as file:
            file.write(data)


class Endless(io.RawIOBase):
    """A log that is never in memory as a whole: pieces by the megabyte."""

    def __init__(self, pieces: list[tuple[bytes, int]]) -> None:
        self._pieces = [(piece, times) for piece, times in pieces if times]

    def read(self, size: int = -1, /) -> bytes:
        if not self._pieces:
            return b""
        piece, times = self._pieces[0]
        self._pieces[0:1] = [(piece, times - 1)] if times > 1 else []
        return piece


@pytest.mark.parametrize("what", [b"x", b"\0", b"\xff", b"\r", b"9", "あ".encode()[:2], b"|", b"[rank3]: "])
def test_lines_of_a_hundred_megabytes(what: bytes) -> None:
    """One line of 100 MB of anything: memory stays bounded, and the line after it is understood."""
    block = what * (1_000_000 // len(what))
    last = b"\n iteration 5/ 10 | lm_loss: 2.5 | learning rate: 1.0 |\n"
    out = io.StringIO()
    output = Output(out, json=True)
    view = LossView(output, Metrics(None))
    tracemalloc.start()
    try:
        scanner = Scanner(view.shapes())
        stream = Endless([(block, 100), (last, 1)])
        parser = LineParser("log")
        while chunk := stream.read():
            for number, offset, data in scanner.feed(chunk):
                for event in view.pick(parser.parse(offset, data, number)):
                    view.accept(event)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (event,) = [json.loads(row) for row in out.getvalue().splitlines()]
    assert (event["iteration"], event["loss"], event["offset"]) == (5, 2.5, 100 * len(block) + 1)
    assert peak < 30_000_000


@pytest.mark.parametrize("words", [["tail"], ["tail", "--raw"], ["tail", "--errors"], ["explain"]])
def test_a_line_without_end(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that gives bytes for ever is refused: no end of the reading would come."""
    monkeypatch.setattr(endless, "LINE_AT_MOST_BYTES", 3_000_000)
    assert main([*words, "/dev/zero"]) == 2
    assert "/dev/zero: no end of a line" in capsys.readouterr().err


def test_names_of_files_are_shown_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name may hold what a terminal obeys: it never reaches one, on stdout as on stderr."""
    names = [tmp_path / f"{name}\x1b[31m.log" for name in "abc"]
    for path in names[:2]:
        path.write_text("Traceback (most recent call last):\n  File 'x.py', line 1, in f\nValueError: a\n")
    names[2].write_text("")
    files = [str(path) for path in names]
    for words in (["tail"], ["tail", "--raw"], ["tail", "--errors"], ["explain"]):
        main([*words, *files])
        main([*words, files[2]])
        shown = "".join(capsys.readouterr())
        assert "\x1b" not in shown
        assert r"\x1b[31m.log" in shown or words == ["explain"]
