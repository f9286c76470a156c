"""A multi-pattern engine changes the speed and nothing else; without the package all works as ever."""

from __future__ import annotations

import io
import itertools
import random
import re
from collections.abc import Callable

import numpy
import pytest

from hpcjob.logs import engine
from hpcjob.logs import scan as scanning
from hpcjob.logs.scan import scan
from hpcjob.logs.shapes import Interest, Shapes

TEXTS = {Interest.ALL: [b"out of memory", b"NCCL WARN", b"code = -9"], Interest.LAST: [b"iteration"]}
FLOOD = [b"via P2P/"]


class Regex:
    """The part of the package's interface that is used, made of `re`: stands in where it is not installed."""

    HS_MODE_BLOCK = HS_FLAG_MULTILINE = 1
    HS_FLAG_SINGLEMATCH = 2

    class ScanTerminated(Exception):  # noqa: N818 - its name there
        pass

    error = ValueError

    class Database:
        def __init__(self, mode: int) -> None:
            pass

        def compile(self, expressions: list[bytes], ids: list[int], elements: int, flags: list[int]) -> None:
            self.patterns = [
                (re.compile(text, re.MULTILINE), number, bool(flag & 2))
                for text, number, flag in zip(expressions, ids, flags, strict=True)
            ]

        def scan(self, data: bytes, match_event_handler: Callable[..., object]) -> None:
            found = sorted(
                (match.end(), number)
                for pattern, number, once in self.patterns
                for match in itertools.islice(pattern.finditer(data), 1 if once else None)
            )
            for end, number in found:
                if match_event_handler(number, 0, end, 0, None):
                    raise Regex.ScanTerminated


def stand_in(name: str) -> object:
    return Regex if name == "hyperscan" else numpy


def log(seed: int) -> bytes:
    choose = random.Random(seed)
    lines = []
    for number in range(4000):
        lines.append(f"node01:1:{number} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read".encode())
        if choose.random() < 0.01:
            lines.append(b"[rank%d]: iteration %d" % (choose.randrange(8), number))
        if choose.random() < 0.001:
            lines.append(choose.choice([b"x NCCL WARN y", b"[rank3]: out of memory", b"code = -9", b"code = -8"]))
    return b"\n".join(lines)


def found(data: bytes, *, sharp: bool) -> tuple[list[tuple[int, int, bytes]], set[bytes]]:
    shapes = Shapes([*TEXTS.items(), (Interest.SOME, FLOOD)])
    if sharp:
        shapes.sharpen()
        assert shapes.glance is not None
    ranks: set[bytes] = set()
    lines = list(scan(io.BytesIO(data), shapes, census=lambda block: ranks.update(re.findall(rb"\[rank\d", block))))
    return [line for line in lines if b"P2P" not in line[2] and b"iteration" not in line[2]], ranks


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("real", [True, False])
def test_the_same_is_found(seed: int, real: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines, their numbers and offsets, and the ranks seen, over many blocks."""
    if real:
        pytest.importorskip("hyperscan")
    else:
        monkeypatch.setattr(engine.importlib, "import_module", stand_in)
    monkeypatch.setattr(scanning, "BLOCK_BYTES", 8 * 1024)
    data = log(seed)
    plain = found(data, sharp=False)
    assert any(b"out of memory" in line for _, _, line in plain[0])
    assert found(data, sharp=True) == plain


def test_progress_and_what_follows_a_traceback_are_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last progress is given at the end, and while something is unfinished every line is."""
    monkeypatch.setattr(engine.importlib, "import_module", stand_in)
    shapes = Shapes([*TEXTS.items(), (Interest.SOME, FLOOD)])
    shapes.sharpen()
    filler = b"x" * 99 + b"\n"
    data = filler * 2000 + b"iteration 7\n" + filler * 2000
    assert [line for _, _, line in scan(io.BytesIO(data), shapes)] == [b"iteration 7"]
    wanted = [False]
    lines = scan(io.BytesIO(b"code = -9\n" + filler * 2000), shapes, pending=lambda: wanted[0])
    assert next(lines)[2] == b"code = -9"
    wanted[0] = True
    assert sum(1 for _ in lines) == 2000


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed: blocks are looked at as ever."""

    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(engine.importlib, "import_module", missing)
    shapes = Shapes(list(TEXTS.items()))
    shapes.sharpen()
    assert shapes.glance is None


ROWS = (b"iteration", b"loss", b"heckpoint")


def training(seed: int) -> bytes:
    """A log of floods, rows of several kinds, bars, and lines without an end."""
    choose = random.Random(seed)
    lines = []
    for number in range(3000):
        flood = b"node01:1:%d [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P" % number
        row = b"iteration %d/ 3000 | lm loss: 2.%d |" % (number, number)
        other = choose.choice(
            [b"saved checkpoint at iteration %d" % number, b"no row", b"10%|#| loss=2\r20%|##| loss=1"]
        )
        lines.append(choose.choices([flood, row, other], [0.9, 0.08, 0.02])[0])
    return b"\n".join(lines)


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("real", [True, False])
def test_all_lines_with_a_text_are_found_by_their_places(
    real: bool, numbered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every line with a text is wanted, as for plots, the engine tells where they are."""
    if real:
        pytest.importorskip("hyperscan")
    else:
        monkeypatch.setattr(engine.importlib, "import_module", stand_in)
    monkeypatch.setattr(scanning, "BLOCK_BYTES", 4 * 1024)
    data = training(1)
    shapes = Shapes([(Interest.ALL, ROWS)], bounded=False, numbered=numbered)
    shapes.sharpen()
    assert shapes.find is not None
    expected = []
    for match in re.finditer(rb"[^\n]+", data):
        if any(text in match[0] for text in ROWS):
            expected += [(match.start(), part) for part in match[0].split(b"\r")]
    found = list(scan(io.BytesIO(data), shapes))
    assert [(offset, line) for _, offset, line in found] == expected
    for number, offset, _ in found:
        assert number == (data.count(b"\n", 0, offset) + 1 if numbered else 0)


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("at_end", [True, False])
def test_the_last_rows_are_the_same_however_they_are_looked_for(
    installed: bool, at_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By shape alone, by the text that the last block had, or by an engine once the log is long."""

    def import_module(name: str) -> object:
        if not installed and name == "hyperscan":
            raise ImportError(name)
        return stand_in(name)

    monkeypatch.setattr(engine.importlib, "import_module", import_module)
    monkeypatch.setattr(scanning, "BLOCK_BYTES", 4 * 1024)
    data = b"seq_length ........ 2048\n" + training(2)
    if not at_end:
        data += b"\n" + b"\n".join(b"node01:1:%d NCCL INFO Channel" % number for number in range(9000))
    texts = [(Interest.ALL, (b"seq_length .",)), (Interest.LAST, ROWS)]
    rows = [line for line in re.split(rb"[\n\r]", data) if any(text in line for text in ROWS)][-10:]
    for sharp in (False, True):
        shapes = Shapes(texts, bounded=False, recent=28, numbered=False)
        if sharp:
            shapes.sharpen()
        found = [line for _, _, line in scan(io.BytesIO(data), shapes)]
        assert found[-10:] == rows
        assert (b"seq_length ........ 2048" in found) is not sharp
