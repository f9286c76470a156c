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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from hpcjob.logs import engine
from hpcjob.logs.compressed import Stream
from hpcjob.logs.lines import LINE_LIMIT_BYTES
from hpcjob.logs.shape import shape

BLOCK_BYTES = 128 * 1024
_KNOWN_AT_MOST = 50_000
_SHAPE_KEPT_BYTES = 2048
_SOME = 64
_RANK_PREFIXES = (shape(b"[rank3]:"), shape(b"]<std"))
_NCCL = b" NCCL "
_SHORT_BYTES = 16
_GRAM_BYTES = 4
_CONTROL = bytes({*range(1, 32), 127} - set(b"\t\n\r\x1b"))
_DRY_LINES = 2_000  # after these only the first and last of a block are asked for their process
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


_MEANINGS = {Interest.LAST: engine.PROGRESS, Interest.SOME: engine.SOME}
_RANK_PATTERNS = (rb"\[rank\d", rb"\]<std", rb"^ {0,6}\d{1,7}: ")
_SOME_BLOCKS = 64  # with floods, of each file, whose lines are looked at


class Shapes:
    """Shapes seen so far, and the interest in each.

    Args:
        needles: texts, with the interest in lines that hold them; the first that is found decides.
        bounded: read only so many lines of a shape and file that a flood does not take hours.
        recent: if not 0, of the lines of which the last matters give those of so many blocks at the end, all of them.
    """

    def __init__(
        self, needles: Iterable[tuple[Interest, Iterable[bytes]]], *, bounded: bool = True, recent: int = 0
    ) -> None:
        self.recent = recent
        self._texts = [(interest, text) for interest, texts in needles for text in texts]
        self._needles = [(interest, shape(text)) for interest, text in self._texts]
        self._known: dict[bytes, Interest] = {}
        self._grams: dict[bytes, list[int]] | None = None
        self.glance: engine.Glance | None = None
        self.newlines: Callable[[bytes], int] = lambda data: data.count(b"\n")
        self._sharpened = False
        self.ranked: set[bytes] = set()
        """Shapes of lines whose prefix names a rank."""
        self.at_most = {Interest.SOME: _SOME, Interest.ALL: _ALL_AT_MOST if bounded else sys.maxsize}

    def sharpen(self) -> None:
        """Have a multi-pattern engine pass over blocks without interest, if one is installed: it pays for much text."""
        if self._sharpened:
            return
        self._sharpened = True
        texts: dict[int, list[bytes]] = {}
        for interest, text in self._texts:
            texts.setdefault(_MEANINGS.get(interest, engine.WANTED), []).append(text)
        self.glance = engine.glance(texts, _RANK_PATTERNS)
        if self.glance is not None:
            self.newlines = engine.line_counter()

    def want_all(self) -> None:
        """From now on take each line of which the last of a block was enough."""
        self._texts = [(Interest.ALL if one is Interest.LAST else one, text) for one, text in self._texts]
        self._needles = [(interest, shape(text)) for interest, text in self._texts]
        self._known.clear()
        self._grams = None
        self.glance, self._sharpened = None, False

    def _look(self, key: bytes) -> Interest:
        """Look for the needles in a shape; where each line is another, that is nearly all there is to do.

        Most needles are ruled out at once: their first bytes are nowhere in the shape.
        """
        if self._grams is None:
            self._grams = {}
            for place, (_, needle) in enumerate(self._needles):
                self._grams.setdefault(needle[:_GRAM_BYTES] if len(needle) >= _GRAM_BYTES else b"", []).append(place)
        if len(key) > _SHAPE_KEPT_BYTES:
            places: Iterable[int] = range(len(self._needles))
        else:
            there = {key[at : at + _GRAM_BYTES] for at in range(len(key) - _GRAM_BYTES + 1)}
            found = there & self._grams.keys()
            places = sorted(place for gram in (*found, b"") for place in self._grams.get(gram, ()))
        for place in places:
            interest, needle = self._needles[place]
            if needle in key:
                return interest
        return Interest.NONE

    def interest(self, key: bytes) -> Interest:
        """Return the interest in lines of the shape ``key``."""
        known = self._known.get(key)
        if known is None:
            if _is_binary(key):
                return Interest.NONE
            known = self._look(key)
            if len(key) <= _SHAPE_KEPT_BYTES:
                if len(self._known) >= _KNOWN_AT_MOST:
                    self._known.clear()
                    self.ranked.clear()
                self._known[key] = known
                if key.startswith(b":") or any(prefix in key for prefix in _RANK_PREFIXES):
                    self.ranked.add(key)
        return known


def _is_binary(key: bytes) -> bool:
    """Whether a line is no text: one in twenty of its characters is a control character that no terminal shows.

    No two lines of such bytes are alike, so that looking for needles in each would take hours.
    """
    return len(key) > _SHORT_BYTES and 20 * len(key.translate(None, _CONTROL)) < 19 * len(key)


def scan(
    stream: Stream,
    shapes: Shapes,
    *,
    pending: Callable[[], bool] = lambda: False,
    census: Callable[[bytes], None] = lambda _: None,
) -> Iterator[tuple[int, int, bytes]]:
    """Give the lines of interest of a stream; see `Scanner`."""
    scanner = Scanner(shapes, pending=pending, census=census)
    while chunk := stream.read(BLOCK_BYTES):
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
        self._cutter = _Cutter(offset, skip_first=skip_first)
        self._reader = _Reader(shapes, pending, census)
        self._numbered = offset == 0

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

    def _read(self, cut: _Cut) -> Iterator[tuple[int, int, bytes]]:
        for number, place, data in self._reader.read(cut):
            yield number if self._numbered else 0, place, data


class _Cut(NamedTuple):
    """A block of whole lines; or, unless it ``ends`` there, what a bar has shown of a line that goes on."""

    offset: int
    data: bytes
    ends: bool = True


class _Cutter:
    """Cut chunks into blocks of whole lines; a line longer than the limit is cut, so memory stays bounded.

    Of a progress bar that is longer, an epoch of Lightning's or tqdm's, each part comes as a block of its own.
    """

    def __init__(self, offset: int, *, skip_first: bool) -> None:
        self.carried = b""
        self._lost = 0  # bytes of the carried line that were dropped
        self._offset = offset
        self._skip = skip_first

    def feed(self, chunk: bytes) -> list[_Cut]:
        end = chunk.rfind(b"\n")
        if end < 0:
            return self._keep(chunk)
        found: list[_Cut] = []
        start = 0
        first = chunk.find(b"\n")
        if self._skip or self._lost or len(self.carried) + first > LINE_LIMIT_BYTES:
            start = first + 1
            found += self._keep(chunk[:first])
            found.append(self._take(self.carried))
        if self._skip:
            self._skip = False
            found.clear()
        if start <= end:
            found.append(self._take(b"".join((self.carried, memoryview(chunk)[start:end]))))
        found += self._keep(chunk[end + 1 :])
        return found

    def finish(self) -> list[_Cut]:
        found = [self._take(self.carried)] if self.carried and not self._skip else []
        self._skip = False
        return found

    def _take(self, block: bytes) -> _Cut:
        offset = self._offset
        self._offset += len(block) + self._lost + 1
        self.carried, self._lost = b"", 0
        return _Cut(offset, block)

    def _keep(self, data: bytes) -> list[_Cut]:
        if not self.carried and data.startswith(b"\0"):
            # A file that was cut while its writer went on begins with a hole.
            self._lost += len(data) - len(data := data.lstrip(b"\0"))
        if len(self.carried) + len(data) <= LINE_LIMIT_BYTES:
            self.carried += data
            return []
        whole = self.carried + data
        shown = whole.rfind(b"\r") + 1
        self.carried = whole[shown:][:LINE_LIMIT_BYTES]
        if not shown or self._skip:
            self._lost += len(whole) - len(self.carried)
            return []
        found = [_Cut(self._offset, whole[:shown], ends=False)]
        self._offset += shown + self._lost
        self._lost = len(whole) - shown - len(self.carried)
        return found


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

    def read(self, cut: _Cut) -> Iterator[tuple[int, int, bytes]]:
        offset, data, ends = cut
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

    def _pass(self, cut: _Cut, glance: engine.Glance) -> bool:
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
        self._number += self._shapes.newlines(data) + ends
        return True

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
        last = set(progress)
        places = set({key: index for index, key in enumerate(keys) if key in last}.values()) if last else set()
        by_process = {key for key in each if self._shapes.interest(key) is Interest.PROCESS}
        known = {key for key in by_process if self._dry.get(key, 0) > _DRY_LINES}
        for key in known:
            for index in (keys.index(key), len(keys) - 1 - keys[::-1].index(key)):
                if self._is_new_process(key, lines[index]):
                    places.add(index)
        each = each - known
        for index, key in enumerate(keys) if each else ():
            if key not in each:
                continue
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
