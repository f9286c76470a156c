"""Whether a block of a log holds any text of interest at all, by a multi-pattern engine where one is installed.

Hyperscan (the package ``hyperscan``, or its fork Vectorscan under the same name) looks for hundreds of texts at once at
more than a gigabyte a second. Most blocks of a large log hold nothing but floods and progress; only the others need
`hpcjob.logs.scan` to look at their lines. Nothing changes in what is found, and without the package all blocks are
looked at.
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

Glance = Callable[[bytes], int]
"""Says of a block what it holds: a sum of `WANTED`, `PROGRESS`, `SOME` and `RANKS`."""


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
    try:
        engine: Any = importlib.import_module("hyperscan")
    except ImportError:
        return None
    patterns = [(re.escape(text), meaning) for meaning, group in texts.items() for text in group]
    patterns += [(pattern, RANKS) for pattern in ranks]
    database = engine.Database(mode=engine.HS_MODE_BLOCK)
    flags = engine.HS_FLAG_SINGLEMATCH | engine.HS_FLAG_MULTILINE
    try:
        database.compile(
            expressions=[pattern for pattern, _ in patterns],
            ids=[meaning for _, meaning in patterns],
            elements=len(patterns),
            flags=[flags] * len(patterns),
        )
    except engine.error:
        return None  # a processor that it does not support

    def look(data: bytes) -> int:
        seen = 0

        def note(meaning: int, *_: object) -> bool:
            nonlocal seen
            seen |= meaning
            return seen & WANTED != 0  # enough is known

        try:
            database.scan(data, match_event_handler=note)
        except engine.ScanTerminated:
            pass
        except engine.error:
            return WANTED
        return seen

    return look
