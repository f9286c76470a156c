"""What one rank alone says near its end, where no rule knows a cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpcjob.logs.compressed import compression
from hpcjob.logs.lines import clean
from hpcjob.logs.shape import shape
from hpcjob.logs.sources import Source

_TAIL_BYTES = 32 * 1024
_FILES_AT_LEAST = 3
_FILES_AT_MOST = 1024
_TEXT_AT_MOST = 160
_LINES = 5


def odd_lines(sources: Iterable[Source]) -> list[str]:
    """Return lines at the end of one rank's file whose like is in no other rank's, the last of each rank first."""
    files = [source for source in sources if source.rank is not None][:_FILES_AT_MOST]
    tails = {source: list(_tail(source)) for source in files}
    by_shape: dict[bytes, set[int | None]] = {}
    for source, lines in tails.items():
        for line in lines:
            by_shape.setdefault(shape(line), set()).add(source.rank)
    ranks = {source.rank for source in files}
    if len(ranks) < _FILES_AT_LEAST:
        return []
    found = []
    for source, lines in tails.items():
        own = [line for line in lines if len(by_shape[shape(line)]) == 1]
        if own:
            found.append(f"rank {source.rank} alone says: {clean(own[-1]).strip()[:_TEXT_AT_MOST]}")
    # Where most ranks have a line of their own, such lines tell nothing.
    return found[:_LINES] if len(found) * 2 <= len(ranks) else []


def _tail(source: Source) -> Iterator[bytes]:
    try:
        if compression(source.path) is not None:
            return
        with source.path.open("rb") as file:
            start = max(0, file.seek(0, 2) - _TAIL_BYTES)
            file.seek(start)
            lines = file.read(_TAIL_BYTES).split(b"\n")
    except OSError:
        return
    yield from (line for line in lines[1 if start else 0 :] if line.strip())
