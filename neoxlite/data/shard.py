"""A part of the input that one of several runs takes, such that the parts in order are the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Final

from neoxlite.errors import DataError

_BLOCK_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Shard:
    """Part ``number`` (from 1) of ``count``.

    The input is all files laid end to end, in bytes as stored. A line belongs to the part in which it begins; a file
    that cannot be entered in the middle (compressed, an archive, Parquet, plain text) to the part in which it begins.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read "2/8". Raises DataError."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise DataError(f"shard {text!r} is not I/N with I from 1 to N", hint="write, for example, --shard 2/8")
        return cls(int(number), int(count))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def prefix(self, prefix: str) -> str:
        """Return the output prefix of this part; the names sort in the order of the parts."""
        width = len(str(self.count))
        return f"{prefix}_{self.number:0{width}}of{self.count}"

    def bytes_of(self, total: int) -> range:
        """Return the bytes of ``total`` in which what belongs to this part begins."""
        return range((self.number - 1) * total // self.count, self.number * total // self.count)


WHOLE: Final = Shard(1, 1)


def line_start(file: IO[bytes], offset: int, size: int) -> int:
    """Return where the first line that begins at ``offset`` or later begins; ``size`` if there is none."""
    if offset <= 0 or offset >= size:
        return max(0, min(offset, size))
    position = file.seek(offset - 1)
    while block := file.read(_BLOCK_BYTES):
        found = block.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(block)
    return size


class LineRange:
    """The bytes ``start`` to ``stop`` of a file, to be read once from the beginning."""

    def __init__(self, file: IO[bytes], start: int, stop: int) -> None:
        self._file, self._stop = file, stop
        file.seek(start)

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; none at the end."""
        return self._file.read(max(0, min(size, self._stop - self._file.tell())))


def count_lines(file: IO[bytes], stop: int) -> int:
    """Return the line ends before ``stop``. Reads all that comes before."""
    lines, part = 0, LineRange(file, 0, stop)
    while block := part.read(1 << 20):
        lines += block.count(b"\n")
    return lines
