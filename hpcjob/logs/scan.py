"""Read whole logs fast: lines are told apart by their shape, and a shape is looked at once.

A log of ten million lines has a few hundred shapes (see `hpcjob.logs.shape`), since its lines differ in numbers and
addresses only. A block of the file is
stripped at once, split, and its set of shapes compared with those known; only lines of interesting shapes become
Python objects. Needles are stripped in the same way, so whether a shape may hold one depends on the shape alone, and
nothing that holds a needle is missed.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterable, Iterator

from hpcjob.logs.compressed import Stream
from hpcjob.logs.lines import LINE_LIMIT_BYTES
from hpcjob.logs.shape import shape

BLOCK_BYTES = 256 * 1024
_KNOWN_AT_MOST = 50_000
_SHAPE_KEPT_BYTES = 2048
_SOME = 64
_RANK_PREFIXES = (shape(b"[rank3]:"), shape(b"]<std"))
_NCCL = b" NCCL "
_ALL_AT_MOST = 200_000


class Interest(enum.IntEnum):
    """What is wanted of the lines of a shape."""

    NONE = 0
    LAST = 1
    """The last one of each block: progress."""
    SOME = 2
    """The first of each file: what comes by the thousand and says the same."""
    PROCESS = 3
    """The first of each process, by NCCL's prefix."""
    ALL = 4
    """Each, up to a bound that keeps a flood from taking hours."""


class Shapes:
    """Shapes seen so far, and the interest in each.

    Args:
        needles: texts, with the interest in lines that hold them; the first that is found decides.
        bounded: read only so many lines of a shape and file that a flood does not take hours.
    """

    def __init__(self, needles: Iterable[tuple[Interest, Iterable[bytes]]], *, bounded: bool = True) -> None:
        self._needles = [(interest, shape(text)) for interest, texts in needles for text in texts]
        self._known: dict[bytes, Interest] = {}
        self.ranked: set[bytes] = set()
        """Shapes of lines whose prefix names a rank."""
        self.at_most = {Interest.SOME: _SOME, Interest.ALL: _ALL_AT_MOST if bounded else sys.maxsize}

    def interest(self, key: bytes) -> Interest:
        """Return the interest in lines of the shape ``key``."""
        known = self._known.get(key)
        if known is None:
            known = next((interest for interest, needle in self._needles if needle in key), Interest.NONE)
            if len(key) <= _SHAPE_KEPT_BYTES:
                if len(self._known) >= _KNOWN_AT_MOST:
                    self._known.clear()
                    self.ranked.clear()
                self._known[key] = known
                if key.startswith(b":") or any(prefix in key for prefix in _RANK_PREFIXES):
                    self.ranked.add(key)
        return known


def scan(
    stream: Stream,
    shapes: Shapes,
    *,
    pending: Callable[[], bool] = lambda: False,
    census: Callable[[bytes], None] = lambda _: None,
) -> Iterator[tuple[int, int, bytes]]:
    """Give the lines of interest of a stream, as (number from 1, offset in bytes, bytes), in their order.

    Args:
        pending: whether the line after the one just given is wanted whatever it is, as within a traceback.
        census: is shown the blocks in which prefixes of lines name ranks.
    """
    cutter = _Cutter()
    reader = _Reader(shapes, pending, census)
    while chunk := stream.read(BLOCK_BYTES):
        for offset, block in cutter.feed(chunk):
            yield from reader.read(offset, block)
    for offset, block in cutter.finish():
        yield from reader.read(offset, block)
    yield from reader.finish()


class _Cutter:
    """Cut a stream into blocks of whole lines; a line longer than the limit is cut, so memory stays bounded."""

    def __init__(self) -> None:
        self._carry = b""
        self._lost = 0  # bytes of the carried line that were dropped
        self._offset = 0

    def feed(self, chunk: bytes) -> list[tuple[int, bytes]]:
        end = chunk.rfind(b"\n")
        if end < 0:
            self._keep(chunk)
            return []
        found: list[tuple[int, bytes]] = []
        start = 0
        first = chunk.find(b"\n")
        if self._lost or len(self._carry) + first > LINE_LIMIT_BYTES:
            start = first + 1
            self._keep(chunk[:first])
            found.append(self._take(self._carry))
        if start <= end:
            found.append(self._take(b"".join((self._carry, memoryview(chunk)[start:end]))))
        self._keep(chunk[end + 1 :])
        return found

    def finish(self) -> list[tuple[int, bytes]]:
        return [self._take(self._carry)] if self._carry else []

    def _take(self, block: bytes) -> tuple[int, bytes]:
        offset = self._offset
        self._offset += len(block) + self._lost + 1
        self._carry, self._lost = b"", 0
        return offset, block

    def _keep(self, data: bytes) -> None:
        room = LINE_LIMIT_BYTES - len(self._carry)
        self._carry += data[:room]
        self._lost += max(0, len(data) - room)


class _Block:
    """Whole lines of the file, with the shape of each."""

    def __init__(self, number: int, offset: int, data: bytes) -> None:
        self.number = number
        self.offset = offset
        self.data = data
        self.keys = shape(data).split(b"\n")


class _Reader:
    """Pick the lines of interest out of blocks that come in their order."""

    def __init__(self, shapes: Shapes, pending: Callable[[], bool], census: Callable[[bytes], None]) -> None:
        self._shapes = shapes
        self._pending = pending
        self._census = census
        self._processes: set[tuple[bytes, bytes]] = set()
        self._counts: dict[bytes, int] = {}
        self._number = 1
        self._progress: tuple[_Block, list[bytes]] | None = None  # the latest, looked at only when it matters

    def read(self, offset: int, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        block = _Block(self._number, offset, data)
        self._number += len(block.keys)
        interest, at_most, ranked = self._shapes.interest, self._shapes.at_most, self._shapes.ranked
        each: set[bytes] = set()
        progress: list[bytes] = []
        counted = False
        for key in set(block.keys):
            wanted = interest(key)
            if wanted is Interest.LAST:
                progress.append(key)
            elif wanted and self._counts.get(key, 0) < at_most.get(wanted, sys.maxsize):
                each.add(key)
            if not counted and key in ranked:
                counted = True
                self._census(data)
        if each or self._pending():
            yield from self.finish()
            yield from self._pick(block, each, progress)
        elif progress:
            self._progress = block, progress

    def finish(self) -> Iterator[tuple[int, int, bytes]]:
        """Give the progress that was put off."""
        if self._progress is not None:
            (block, progress), self._progress = self._progress, None
            yield from self._pick(block, set(), progress)

    def _pick(self, block: _Block, each: set[bytes], progress: list[bytes]) -> Iterator[tuple[int, int, bytes]]:
        lines = block.data.split(b"\n")
        picks = iter(self._places(block.keys, lines, each, progress))
        next_pick = next(picks, None)
        at, done = 0, 0
        position = block.offset
        while True:
            if self._pending():
                place = done
            elif next_pick is None:
                return
            else:
                place = next_pick
            if place >= len(lines):
                return
            while next_pick is not None and next_pick <= place:
                next_pick = next(picks, None)
            position += sum(map(len, lines[at:place])) + place - at
            at, done = place, place + 1
            for part in _parts(lines[place], self._shapes):
                yield block.number + place, position, part

    def _places(self, keys: list[bytes], lines: list[bytes], each: set[bytes], progress: list[bytes]) -> list[int]:
        """Return the indices of the lines that are wanted, in their order."""
        last = set(progress)
        places = set({key: index for index, key in enumerate(keys) if key in last}.values()) if last else set()
        by_process = {key for key in each if self._shapes.interest(key) is Interest.PROCESS}
        for index, key in enumerate(keys) if each else ():
            if key not in each:
                continue
            if key in by_process:
                line = lines[index]
                who = key, line[: line.find(_NCCL)]
                if who not in self._processes:
                    self._processes.add(who)
                    places.add(index)
                continue
            count = self._counts[key] = self._counts.get(key, 0) + 1
            if count <= self._shapes.at_most[self._shapes.interest(key)]:
                places.add(index)
        return sorted(places)


def _parts(data: bytes, shapes: Shapes) -> list[bytes]:
    """Return what a line with carriage returns showed in the end, and the parts of interest that were overwritten."""
    if b"\r" not in data:
        return [data]
    parts = [part for part in data.split(b"\r") if part]
    return [part for part in parts[:-1] if shapes.interest(shape(part))] + parts[-1:]
