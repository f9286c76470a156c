"""Where in a block of a log texts of interest are, by a multi-pattern engine where one is installed.

Hyperscan (the package ``hyperscan``, or its fork Vectorscan under the same name) looks for hundreds of texts at once at
more than a gigabyte a second. Most blocks of a large log hold nothing but floods and progress; only the others need
`hpcjob.logs.scan` to look at their lines. Nothing changes in what is found, and without the package all blocks are
looked at, save where progress alone is looked for: then a text that was in the last block is likely to be in the next.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

WANTED: Final = 1
PROGRESS: Final = 2
SOME: Final = 4
RANKS: Final = 8

_NEWLINE: Final = 10
_FEW: Final = 2
_TRIED_EVERY: Final = 16

Glance = Callable[[bytes], int]
"""Says of a block what it holds: a sum of `WANTED`, `PROGRESS`, `SOME` and `RANKS`."""

Finder = Callable[[bytes], list[int]]
"""Gives of each line of a block that has one of the texts the place where the first of them ends."""


def line_counter() -> Callable[[bytes], int]:
    """Return what counts newlines; numpy does it several times faster than bytes do, once it is imported."""
    numpy: Any = importlib.import_module("numpy")
    return lambda data: int(numpy.count_nonzero(numpy.frombuffer(data, numpy.uint8) == _NEWLINE))


def glance(texts: Mapping[int, Iterable[bytes]], ranks: Iterable[bytes]) -> Glance | None:
    """Return what looks for the texts, None where no engine is installed.

    Args:
        texts: by what they mean.
        ranks: patterns of prefixes that name ranks, in the syntax of Perl.
    """
    wanted = list(texts.get(WANTED, ()))
    direct = wanted if len(wanted) <= _FEW else []
    patterns = [(re.escape(text), meaning) for meaning, group in texts.items() for text in group]
    patterns = [(pattern, RANKS) for pattern in ranks] + [
        item for item in patterns if not (direct and item[1] == WANTED)
    ]
    scan = _database(patterns, once=True)
    if scan is None:
        return None
    all_there_is = sum({meaning for _, meaning in patterns})

    def look(data: bytes) -> int:
        if any(text in data for text in direct):
            return WANTED
        seen = 0

        def note(meaning: int, *_: object) -> bool:
            nonlocal seen
            seen |= meaning
            return seen & WANTED != 0 or seen == all_there_is  # enough is known

        return seen if scan(data, note) else WANTED

    return look


def progress_glance(wanted: Iterable[bytes], progress: Iterable[bytes]) -> Glance:
    """Return what finds blocks with progress without an engine; of one where it finds none it says `WANTED`."""
    direct, order = list(wanted), list(progress)
    missed = 0

    def look(data: bytes) -> int:
        nonlocal missed
        if any(text in data for text in direct):
            return WANTED
        for place, text in enumerate(order if missed % _TRIED_EVERY == 0 else order[:1]):
            if text in data:
                order.insert(0, order.pop(place))
                missed = 0
                return PROGRESS
        missed += 1
        return WANTED

    return look


def finder(texts: Iterable[bytes]) -> Finder | None:
    """Return what finds the lines that have one of the texts, None where no engine is installed."""
    scan = _database([(re.escape(text), WANTED) for text in texts], once=False)
    if scan is None:
        return None

    def find(data: bytes) -> list[int]:
        found: list[int] = []
        line_end = 0

        def note(_: int, __: int, end: int, *___: object) -> bool:
            nonlocal line_end
            if end > line_end:
                found.append(end)
                line_end = data.find(b"\n", end)
                if line_end < 0:
                    line_end = len(data)
            return False

        if not scan(data, note):
            raise RuntimeError("the engine gave up")  # it does so where memory is short
        return found

    return find


_Note = Callable[..., bool]


def _database(patterns: list[tuple[bytes, int]], *, once: bool) -> Callable[[bytes, _Note], bool] | None:
    """Return what calls back with (id, 0, end of the match, ...) until that says True, and returns if all went well.

    Args:
        patterns: each with its id.
        once: report a pattern once a block.
    """
    try:
        engine: Any = importlib.import_module("hyperscan")
    except ImportError:
        return None
    database = engine.Database(mode=engine.HS_MODE_BLOCK)
    flags = engine.HS_FLAG_MULTILINE | (engine.HS_FLAG_SINGLEMATCH if once else 0)
    try:
        database.compile(
            expressions=[pattern for pattern, _ in patterns],
            ids=[number for _, number in patterns],
            elements=len(patterns),
            flags=[flags] * len(patterns),
        )
    except engine.error:
        return None  # a processor that it does not support

    def scan(data: bytes, note: _Note) -> bool:
        try:
            database.scan(data, match_event_handler=note)
        except engine.ScanTerminated:
            pass
        except engine.error:
            return False
        return True

    return scan
