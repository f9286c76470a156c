"""Which lines of a file are worth an object, and what cuts them out of its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from hpcjob.logs.glue import unglue
from hpcjob.logs.lines import Splitter
from hpcjob.logs.scan import Scanner
from hpcjob.logs.shapes import Shapes

Pending = Callable[[str], bool]
"""Whether the next line of a file (by its path) is wanted whatever it is: see `hpcjob.logs.scan.Scanner`."""


def _never(_: str) -> bool:
    return False


class Wanted:
    """Which lines of a file are worth an object.

    Args:
        shapes: those of these shapes; None: each.
    """

    def __init__(self, shapes: Shapes | None = None, pending: Pending = _never) -> None:
        self.shapes = shapes
        self._pending = pending

    def cutter(self, path: str, offset: int = 0, *, skip_first: bool = False) -> Cutter:
        """Return what cuts the bytes of a file into lines, from a place on."""
        if self.shapes is None:
            return Cutter(Splitter(offset, skip_first=skip_first))
        pending = self._pending
        scanner = Scanner(self.shapes, pending=lambda: pending(path), offset=offset, skip_first=skip_first)
        return Cutter(scanner)


class Cutter:
    """Lines out of chunks, as (number or 0, offset, bytes)."""

    def __init__(self, cutter: Splitter | Scanner) -> None:
        self._cutter = cutter

    def feed(self, chunk: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Give the lines that a chunk completes."""
        return self._numbered(self._cutter.feed(chunk))

    def finish(self) -> Iterator[tuple[int, int, bytes]]:
        """Give the line that no newline ended, if there is one."""
        return self._numbered(self._cutter.finish())

    def put_off(self) -> Iterator[tuple[int, int, bytes]]:
        """Give the lines that were put off, see `Scanner.put_off`."""
        return iter(()) if isinstance(self._cutter, Splitter) else self._numbered(self._cutter.put_off())

    @property
    def unfinished(self) -> bytes:
        """What there is of a line whose end has not come."""
        return self._cutter.unfinished

    def _numbered(
        self, found: Iterable[tuple[int, int, bytes] | tuple[int, bytes]]
    ) -> Iterator[tuple[int, int, bytes]]:
        for item in found:
            if len(item) == 2:
                yield 0, item[0], item[1]
            else:
                number, offset, data = item
                for at, piece in unglue(data):
                    yield number, offset + at, piece
