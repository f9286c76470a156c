"""Bytes to lines: cuts, overwritten parts, colours, invalid bytes, prefixes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjob.logs.lines import LINE_LIMIT_BYTES, LineParser, Splitter, clean

from .conftest import line


def split(chunks: list[bytes], **options: bool) -> list[tuple[int, bytes]]:
    splitter = Splitter(**options)
    return [found for chunk in chunks for found in splitter.feed(chunk)] + splitter.finish()


def seen(text: bytes) -> bytes:
    """What a terminal leaves of a line, by the plainest means."""
    parts = [part for part in text.split(b"\r") if part]
    return parts[-1] if parts else b""


pieces = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", "日本語".encode(), b"\xff", b"\x1b[31m", b" "]))


@given(data=pieces.map(b"".join), cuts=st.lists(st.integers(0, 60)))
@settings(max_examples=300)
def test_any_cut_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    """However the bytes arrive, also cut within a character or a CRLF, lines and offsets are those of the whole."""
    places = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    chunks = [data[start:end] for start, end in itertools.pairwise(places)]
    whole = data.split(b"\n")
    expected = []
    offset = 0
    for number, text in enumerate(whole):
        if number < len(whole) - 1 or seen(text):
            expected.append((offset, seen(text)))
        offset += len(text) + 1
    got = split(chunks)
    if got and number_of_last_is_empty(whole, got):
        got.pop()
    assert got == expected


def number_of_last_is_empty(whole: list[bytes], got: list[tuple[int, bytes]]) -> bool:
    """An unfinished line of carriage returns alone shows nothing; whether it counts as a line is left open."""
    return bool(whole[-1]) and not seen(whole[-1]) and got[-1][1] == b""


def test_long_lines_are_cut_and_the_next_one_is_whole() -> None:
    """A line far beyond the limit keeps its beginning, takes bounded memory, and does not swallow its successor."""
    chunks = [b"x" * 100_000] * 50 + [b"end\nnext\n"]
    assert split(chunks) == [(0, b"x" * LINE_LIMIT_BYTES), (5_000_004, b"next")]


def test_progress_bar_without_newline_keeps_its_last_state() -> None:
    """Hours of a progress bar are one line: what it showed last."""
    chunks = [b"\r%3d%%" % percent for percent in range(101)]
    assert split([*chunks, b"\n"]) == [(0, b"100%")]


def test_skip_first_drops_the_line_that_was_entered_in_the_middle() -> None:
    """Reading that starts within a line begins with the next one."""
    assert split([b"ddle\nwhole\n"], skip_first=True) == [(5, b"whole")]
    assert split([b"unfinished"], skip_first=True) == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31merror\x1b[0m: x", "error: x"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b(Btext\x00\x07", "(Btext"),
        ("損失 2.0 \U0001f600".encode(), "損失 2.0 \U0001f600"),
        (b"bad \xff\xfe bytes \xe3\x81", "bad \ufffd\ufffd bytes \ufffd"),
        (b"tab\tstays", "tab\tstays"),
        ("C1 \u009b31m".encode(), "C1 31m"),
    ],
)
def test_clean(data: bytes, text: str) -> None:
    """Colour codes and control characters go, other text stays, invalid bytes are marked."""
    assert clean(data) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node01: hello", {"host": "node01", "text": "hello"}),
        ("gpu-3.cluster.example: hello", {"host": "gpu-3.cluster.example", "text": "hello"}),
        ("10.0.0.1: hello", {"host": "10.0.0.1", "text": "hello"}),
        ("3: hello", {"rank": 3, "text": "hello"}),
        ("03: hello", {"rank": 3, "text": "hello"}),
        (" 3: hello", {"rank": 3, "text": "hello"}),
        ("[rank3]: hello", {"rank": 3, "text": "hello"}),
        ("[rank3]:[E1016 00:00:00 x.cpp:1] hello", {"rank": 3, "text": "[E1016 00:00:00 x.cpp:1] hello"}),
        ("[default3]:hello", {"local_rank": 3, "rank": None, "text": "hello"}),
        ("[1,3]<stderr>:hello", {"rank": 3, "stream": "stderr", "text": "hello"}),
        ("[prterun-n1-7@1,3]<stdout>: hello", {"rank": 3, "stream": "stdout", "text": "hello"}),
        ("[1,12]<stdout>:[rank12]: hello", {"rank": 12, "text": "hello"}),
        ("node02: [rank9]:   File x", {"host": "node02", "rank": 9, "text": "  File x"}),
        ("n2: 2024-05-01 10:00:00,123 hello", {"host": "n2", "time": "2024-05-01 10:00:00,123", "text": "hello"}),
        ("[2023-04-13 17:49:54,660] [INFO] x", {"time": "2023-04-13 17:49:54,660", "text": "[INFO] x"}),
        ("2024-05-01T10:00:00.5+09:00 x", {"time": "2024-05-01T10:00:00.5+09:00", "text": "x"}),
        ("node01:100:101 [0] NCCL INFO x", {"host": "node01", "pid": 100, "text": "NCCL INFO x"}),
        ("node01:100:101 NCCL INFO x", {"host": "node01", "pid": 100, "text": "NCCL INFO x"}),
        ("node01:1:2 [0] misc/x.cc:72 NCCL WARN x", {"host": "node01", "text": "misc/x.cc:72 NCCL WARN x"}),
        (
            "[2025-05-01 10:00:00] node01:1:2 [0] x.cc:7 NCCL WARN x",
            {"host": "node01", "pid": 1, "time": "2025-05-01 10:00:00", "text": "x.cc:7 NCCL WARN x"},
        ),
        ("5: node01:1:2 [0] NCCL INFO x", {"rank": 5, "host": "node01", "text": "NCCL INFO x"}),
        ("[5] node01:1:2 [0] NCCL INFO x", {"rank": 5, "host": "node01", "text": "NCCL INFO x"}),
        ("[80746] [rank3]:x", {"rank": 3, "text": "x"}),
        ("node01:1:2 [0] x.cc:4 (wrap_x) NCCL WARN x", {"host": "node01", "text": "x.cc:4 (wrap_x) NCCL WARN x"}),
        (
            "Fri Aug 11 12:31:45 2023[1,3]<stdout>:node01:1:2 [3] NCCL INFO x",
            {"rank": 3, "host": "node01", "time": "2023-08-11 12:31:45", "text": "NCCL INFO x"},
        ),
        ("[Fri Aug 11 12:31:45 2023] NVRM: x", {"time": "2023-08-11 12:31:45", "host": None, "text": "NVRM: x"}),
        ("(Worker pid=12, ip=10.0.0.1) x", {"host": "10.0.0.1", "pid": 12, "text": "x"}),
        ("(pid=12) node01:1:2 [0] NCCL INFO x", {"host": "node01", "pid": 1, "text": "NCCL INFO x"}),
        ("(raylet) x", {"host": None, "text": "x"}),
        ("x3005c0s13b0n0.hsn.site.gov 12: x", {"host": "x3005c0s13b0n0.hsn.site.gov", "rank": 12, "text": "x"}),
        ("May 14 10:00:00 node01 train[1234]: x", {"host": "node01", "text": "x"}),
        ("x3005c0s13b0n0 12: x", {"host": "x3005c0s13b0n0", "rank": 12, "text": "x"}),
        ("[2025-05-01 10:00:00 TP3] x", {"rank": 3, "time": "2025-05-01 10:00:00", "text": "x"}),
        ("[2025-05-01 10:00:00 DP1 TP3 EP3] x", {"rank": None, "time": "2025-05-01 10:00:00", "text": "x"}),
        ("[2025-05-01 10:00:00 TP3 EP3] x", {"rank": 3, "text": "x"}),
        (
            "  | 2024-11-28T07:42:11.526Z | algo-1:17:18 [2] NCCL INFO x",
            {"host": "algo-1", "pid": 17, "time": "2024-11-28T07:42:11.526Z", "text": "NCCL INFO x"},
        ),
        ("[pod/trainer-0/main] x", {"host": "trainer-0", "text": "x"}),
        ("2025-02-18 12:54 [rank13]:x", {"rank": 13, "time": "2025-02-18 12:54", "text": "x"}),
        ("2023-06-29,15:44:40 | x", {"time": "2023-06-29 15:44:40", "text": "| x"}),
        ("10/17/2025 16:31:56 [INFO] x", {"time": "2025-10-17 16:31:56", "text": "[INFO] x"}),
        ("slurmstepd-node1: error: x", {"host": "node1", "text": "slurmstepd-node1: error: x"}),
        ("[trainer0|0]:x", {"local_rank": 0, "text": "x"}),
        ("stderr: [node01:12] x", {"host": "node01", "stream": "stderr", "text": "[node01:12] x"}),
        ("[node01:12 :0:34] x", {"host": "node01", "text": "[node01:12 :0:34] x"}),
        ("[api2.py:123] x", {"host": None, "text": "[api2.py:123] x"}),
        ("[rank3:12] x", {"host": None, "text": "[rank3:12] x"}),
        ("[   38.175561] nvidia-nvswitch3: x", {"host": None, "text": "nvidia-nvswitch3: x"}),
        ("[  +0.000316] eth0: x", {"host": None, "text": "eth0: x"}),
        ("(base) x", {"host": None, "text": "(base) x"}),
        ("[0] NCCL INFO x", {"rank": None, "text": "[0] NCCL INFO x"}),
        ("[1] 12345", {"rank": None, "text": "[1] 12345"}),
        # No prefixes, though they look a little like one.
        ("RuntimeError: x", {"host": None, "text": "RuntimeError: x"}),
        ("WARNING: x", {"host": None, "text": "WARNING: x"}),
        ("slurmstepd: error: x", {"host": None, "text": "slurmstepd: error: x"}),
        ("epoch3: x", {"host": None, "text": "epoch3: x"}),
        ("step 3: x", {"rank": None, "text": "step 3: x"}),
        ("val1 3: x", {"rank": None, "text": "val1 3: x"}),
        ("[INFO] x", {"text": "[INFO] x"}),
        ("[0]: x", {"rank": None, "text": "[0]: x"}),
        ("| epoch 001 | loss 1", {"host": None, "text": "| epoch 001 | loss 1"}),
        ("Assertion failed: a:1:2 b", {"pid": None, "text": "Assertion failed: a:1:2 b"}),
        ("", {"text": ""}),
    ],
)
def test_prefixes(text: str, expected: dict[str, object]) -> None:
    """Each launcher's and library's prefix is taken off and kept; what only looks like one stays text."""
    parsed = line(text)
    assert {name: getattr(parsed, name) for name in expected} == expected
    assert parsed.shown == text


def test_lines_that_docker_keeps() -> None:
    """Text, stream and time of the driver json-file; JSON of a program stays as it is, and so does a cut one."""
    text = '{"log":"[rank3]: \\u001b[31mx\\n","stream":"stderr","time":"2025-05-01T10:00:00.1Z"}'
    parsed = line(text)
    assert (parsed.text, parsed.rank, parsed.stream) == ("x", 3, "stderr")
    assert parsed.time == "2025-05-01T10:00:00.1Z"
    for other in (text[:-5], '{"log": "x"}', '{"log":12}'):
        assert line(other).text == other


def test_known_hosts_need_not_look_like_hosts() -> None:
    """A host named like a word counts when the job's hostfile, or NCCL, names it."""
    assert line("alpha: x").host is None
    assert line("alpha: x", hosts={"alpha"}).host == "alpha"


def test_in_the_file_of_a_rank_a_number_is_text() -> None:
    """Output such as '0: transformer' in a rank's own file does not change its rank."""
    parsed = line("0: transformer.block", rank=3)
    assert (parsed.rank, parsed.text) == (3, "0: transformer.block")


def test_a_number_in_brackets_is_a_rank_once_nccl_shows_it() -> None:
    """MPICH's ``-prepend-rank``: before that it may be any number."""
    parser = LineParser("log")
    said = b"[3] x", b"[3] Traceback (most recent call last):", b"[4]   x"
    assert [parser.parse(0, text).rank for text in said] == [None, 3, 4]
