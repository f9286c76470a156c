"""Read whole logs fast: lines are told apart by their shape, and a shape is looked at once.

A log of ten million lines has a few hundred shapes (see `hpcjob.logs.shapes`), since its lines differ in numbers and
addresses only. A block of the file is stripped at once, split, and its set of shapes compared with those known; only
lines of interesting shapes become Python objects.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator

from hpcjob.logs import engine
from hpcjob.logs.blocks import BlockCutter, Cut
from hpcjob.logs.compressed import Stream
from hpcjob.logs.shape import shape
from hpcjob.logs.shapes import Interest, Shapes

BLOCK_BYTES = 128 * 1024
_NCCL = b" NCCL "
_DRY_LINES = 2_000  # after these only the first and last of a block are asked for their process
_SOME_BLOCKS = 64  # with floods, of each file, whose lines are looked at


def scan(
    stream: Stream,
    shapes: Shapes,
    *,
    pending: Callable[[], bool] = lambda: False,
    census: Callable[[bytes], None] = lambda _: None,
    see: Callable[[bytes], None] | None = None,
) -> Iterator[tuple[int, int, bytes]]:
    """Give the lines of interest of a stream, each chunk of which ``see`` is shown first; see `Scanner`."""
    scanner = Scanner(shapes, pending=pending, census=census)
    while chunk := stream.read(BLOCK_BYTES):
        if see is not None:
            see(chunk)
        yield from scanner.feed(chunk)
    yield from scanner.finish()


class Scanner:
    """Give the lines of interest of chunks that come in their order, as (number from 1, offset in bytes, bytes).

    Args:
        pending: whether the line after the one just given is wanted whatever it is, as within a traceback.
        census: is shown the blocks in which prefixes of lines name ranks.
        offset: place of the first byte in its file; unless it is 0, numbers of lines are not known and 0.
        skip_first: drop the first line, of which only the end will be seen.
    """

    def __init__(
        self,
        shapes: Shapes,
        *,
        pending: Callable[[], bool] = lambda: False,
        census: Callable[[bytes], None] = lambda _: None,
        offset: int = 0,
        skip_first: bool = False,
    ) -> None:
        self._cutter = BlockCutter(offset, skip_first=skip_first)
        self._reader = _Reader(shapes, pending, census)
        self._numbered = offset == 0 and shapes.numbered

    def feed(self, chunk: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Give what a chunk completes."""
        for cut in self._cutter.feed(chunk):
            yield from self._read(cut)

    def finish(self) -> Iterator[tuple[int, int, bytes]]:
        """Give what is left at the end, and begin anew after it."""
        for cut in self._cutter.finish():
            yield from self._read(cut)
        yield from self.put_off()

    def put_off(self) -> Iterator[tuple[int, int, bytes]]:
        """Give the progress that was put off since it matters only with what comes after it."""
        for number, offset, data in self._reader.finish():
            yield number if self._numbered else 0, offset, data

    @property
    def unfinished(self) -> bytes:
        """The line whose end has not come."""
        return self._cutter.carried

    def _read(self, cut: Cut) -> Iterator[tuple[int, int, bytes]]:
        for number, place, data in self._reader.read(cut):
            yield number if self._numbered else 0, place, data


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
        self._dry: dict[bytes, int] = {}  # lines of a shape since one was of a process not seen before
        self._counts: dict[bytes, int] = {}
        self._number = 1
        # The latest blocks with such, looked at when it matters.
        self._progress: deque[tuple[int, int, bytes]] = deque(maxlen=max(1, shapes.recent))
        self._some_left = _SOME_BLOCKS

    def read(self, cut: Cut) -> Iterator[tuple[int, int, bytes]]:
        offset, data, ends = cut
        if self._shapes.find is not None and not self._pending():
            yield from self._found(cut, self._shapes.find(data))
            return
        if self._shapes.glance is not None and not self._pending() and self._pass(cut, self._shapes.glance):
            return
        block = _Block(self._number, offset, data)
        self._number += len(block.keys) - (not ends)
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
            self._progress.append((block.number, offset, data))

    def _pass(self, cut: Cut, glance: engine.Glance) -> bool:
        """Pass over a block if its lines need not be looked at."""
        offset, data, ends = cut
        seen = glance(data)
        if seen & engine.SOME and self._some_left:
            self._some_left -= 1
            return False
        if seen & engine.WANTED:
            return False
        if seen & engine.RANKS:
            self._census(data)
        if seen & engine.PROGRESS:
            self._progress.append((self._number, offset, data))
        if self._shapes.numbered:
            self._number += self._shapes.newlines(data) + ends
        return True

    def _found(self, cut: Cut, places: list[int]) -> Iterator[tuple[int, int, bytes]]:
        """Give the lines of a block in which something was found at these places, all of them and no others."""
        offset, data, ends = cut
        counted = 0
        for place in places:
            start = data.rfind(b"\n", 0, place) + 1
            end = data.find(b"\n", place)
            line = data[start:] if end < 0 else data[start:end]
            if not self._shapes.interest(shape(line)):
                continue
            if self._shapes.numbered:
                self._number += data.count(b"\n", counted, start)
                counted = start
            for part in _parts(line, self._shapes):
                yield self._number, offset + start, part
        if self._shapes.numbered:
            self._number += data.count(b"\n", counted) + ends

    def finish(self) -> Iterator[tuple[int, int, bytes]]:
        """Give the progress that was put off."""
        while self._progress:
            block = _Block(*self._progress.popleft())
            progress = {key for key in set(block.keys) if self._shapes.interest(key) is Interest.LAST}
            if self._shapes.recent:
                yield from self._pick(block, progress, [])
            else:
                yield from self._pick(block, set(), list(progress))

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
        places = {len(keys) - 1 - keys[::-1].index(key) for key in set(progress)}
        by_process = {key for key in each if self._shapes.interest(key) is Interest.PROCESS}
        known = {key for key in by_process if self._dry.get(key, 0) > _DRY_LINES}
        for key in known:
            for index in (keys.index(key), len(keys) - 1 - keys[::-1].index(key)):
                if self._is_new_process(key, lines[index]):
                    places.add(index)
        each = each - known
        for index in [index for index, key in enumerate(keys) if key in each] if each else ():
            key = keys[index]
            if key in by_process:
                if self._is_new_process(key, lines[index]):
                    places.add(index)
                continue
            count = self._counts[key] = self._counts.get(key, 0) + 1
            if count <= self._shapes.at_most.get(self._shapes.interest(key), sys.maxsize):
                places.add(index)
        return sorted(places)

    def _is_new_process(self, key: bytes, line: bytes) -> bool:
        who = key, line[: line.find(_NCCL)]
        if who in self._processes:
            self._dry[key] = self._dry.get(key, 0) + 1
            return False
        self._processes.add(who)
        self._dry[key] = 0
        return True


def _parts(data: bytes, shapes: Shapes) -> list[bytes]:
    """Return what a line with carriage returns showed in the end, and the parts of interest that were overwritten."""
    if b"\r" not in data:
        return [data]
    parts = [part for part in data.split(b"\r") if part]
    return [part for part in parts[:-1] if shapes.interest(shape(part))] + parts[-1:]
