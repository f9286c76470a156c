"""A compressed log read like any other: from its start to its end, once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hpcjob.logs.compressed import open_log
from hpcjob.logs.file_tail import CHUNK_BYTES, FileTail
from hpcjob.logs.lines import Line


class ArchiveTail(FileTail):
    """One compressed file; it has no end to look at first, so its size is 0 and all of it is one window."""

    _read = False

    def poll(self, until: int | None = None) -> Iterator[Line]:
        """Give all lines, at the first poll only: a compressed log does not grow."""
        if self._read:
            return
        self._read = True
        with contextlib.closing(open_log(self.source.path)) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                for number, offset, data in self._cutter.feed(chunk):
                    yield self._parser.parse(offset, data, number)

    def seek(self, offset: int) -> None:
        """Begin anew."""
        self._cutter = self._cut(0)
        self._read = False

    def size(self) -> int:
        """Return 0: see the class."""
        return 0
