"""A multi-pattern engine changes the speed and nothing else; without the package all works as ever."""

from __future__ import annotations

import io
import random
import re

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

    HS_MODE_BLOCK = HS_FLAG_SINGLEMATCH = HS_FLAG_MULTILINE = 1

    class ScanTerminated(Exception):  # noqa: N818 - its name there
        pass

    error = ValueError

    class Database:
        def __init__(self, mode: int) -> None:
            pass

        def compile(self, expressions: list[bytes], ids: list[int], elements: int, flags: list[int]) -> None:
            self.patterns = [
                (re.compile(text, re.MULTILINE), number) for text, number in zip(expressions, ids, strict=True)
            ]

        def scan(self, data: bytes, match_event_handler: object) -> None:
            for pattern, number in self.patterns:
                if pattern.search(data) and match_event_handler(number, 0, 0, 0, None):  # type: ignore[operator]
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
