"""Which lines of a log are of interest, by their shape (see `hpcjob.logs.shape`): each shape is looked at once.

Needles are stripped in the same way as lines, so whether a shape may hold one depends on the shape alone, and nothing
that holds a needle is missed.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterable

from hpcjob.logs import engine
from hpcjob.logs.shape import shape

MUCH_BYTES = 64 * 2**20
"""Of a log, from which on a multi-pattern engine is worth its start."""
_KNOWN_AT_MOST = 50_000
_SHAPE_KEPT_BYTES = 2048
_SOME = 64
_RANK_PREFIXES = (shape(b"[rank3]:"), shape(b"]<std"))
_SHORT_BYTES = 16
_GRAM_BYTES = 4
_CONTROL = bytes({*range(1, 32), 127} - set(b"\t\n\r\x1b"))
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


class Shapes:
    """Shapes seen so far, and the interest in each.

    Args:
        needles: texts, with the interest in lines that hold them; the first that is found decides.
        bounded: read only so many lines of a shape and file that a flood does not take hours.
        recent: if not 0, of the lines of which the last matters give those of so many blocks at the end, all of them;
            what else is looked for is at the start of a log, and is no longer once that is long (see `sharpen`).
        numbered: whether the lines' numbers matter; counting takes time.
    """

    def __init__(
        self,
        needles: Iterable[tuple[Interest, Iterable[bytes]]],
        *,
        bounded: bool = True,
        recent: int = 0,
        numbered: bool = True,
    ) -> None:
        self.recent = recent
        self.numbered = numbered
        self._texts = [(interest, text) for interest, texts in needles for text in texts]
        self._needles = [(interest, shape(text)) for interest, text in self._texts]
        self._known: dict[bytes, Interest] = {}
        self._grams: dict[bytes, list[int]] | None = None
        self.glance: engine.Glance | None = None
        self.find: engine.Finder | None = None
        self.newlines: Callable[[bytes], int] = lambda data: data.count(b"\n")
        self._sharpened = False
        self.ranked: set[bytes] = set()
        """Shapes of lines whose prefix names a rank."""
        self.at_most = {Interest.SOME: _SOME, Interest.ALL: _ALL_AT_MOST if bounded else sys.maxsize}
        if recent:
            self.glance = engine.progress_glance(self._of(Interest.ALL), self._of(Interest.LAST))

    def _of(self, *wanted: Interest) -> list[bytes]:
        return [text for interest, text in self._texts if interest in wanted]

    def sharpen(self) -> None:
        """Have a multi-pattern engine pass over blocks without interest, if one is installed: it pays for much text."""
        if self._sharpened:
            return
        self._sharpened = True
        if self.at_most[Interest.ALL] == sys.maxsize and not self._of(*(set(Interest) - {Interest.ALL})):
            self.find = engine.finder(self._of(Interest.ALL))  # each line that has a needle: no need for shapes
            return
        texts: dict[int, list[bytes]] = {}
        for interest, text in self._texts:
            if not self.recent or interest is Interest.LAST:
                texts.setdefault(_MEANINGS.get(interest, engine.WANTED), []).append(text)
        found = engine.glance(texts, () if self.recent else _RANK_PATTERNS)
        if found is not None:
            self.glance = found
            if self.numbered:
                self.newlines = engine.line_counter()
        elif self.recent:
            self.glance = engine.progress_glance((), self._of(Interest.LAST))

    def want_all(self) -> None:
        """From now on take each line of which the last of a block was enough."""
        self._texts = [(Interest.ALL if one is Interest.LAST else one, text) for one, text in self._texts]
        self._needles = [(interest, shape(text)) for interest, text in self._texts]
        self._known.clear()
        self._grams = None
        self.glance = self.find = None
        self._sharpened = False

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
