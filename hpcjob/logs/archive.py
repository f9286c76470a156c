"""A compressed log read like any other: from its start to its end, once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hpcjob.logs.compressed import open_log
from hpcjob.logs.follow import CHUNK_BYTES, FileTail
from hpcjob.logs.lines import Gate, Line, LineParser, Splitter
from hpcjob.logs.sources import Source


class ArchiveTail(FileTail):
    """One compressed file; it has no end to look at first, so its size is 0 and all of it is one window."""

    def __init__(self, source: Source, *, hosts: set[str] | None = None) -> None:
        super().__init__(source, hosts=hosts)
        self._lines = LineParser(str(source.path), rank=source.rank, hosts=hosts)
        self._cutter = Splitter()
        self._read = False

    def poll(self, gate: Gate | None = None) -> Iterator[Line]:
        """Give all lines, at the first poll only: a compressed log does not grow."""
        if self._read:
            return
        self._read = True
        with contextlib.closing(open_log(self.source.path)) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                for offset, data in self._cutter.feed(chunk):
                    if gate is None or gate(data):
                        yield self._lines.parse(offset, data)

    def finish(self) -> Iterator[Line]:
        """Give the last line, which no newline ended, if there is one."""
        for offset, data in self._cutter.finish():
            yield self._lines.parse(offset, data)

    def seek(self, offset: int) -> None:
        """Begin anew."""
        self._cutter = Splitter()
        self._read = False

    def size(self) -> int:
        """Return 0: see the class."""
        return 0
