"""Whole logs as the lines of interest in them: opened, decompressed, scanned by shape, taken apart, parsed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

from hpcjob.logs.compressed import Stream, open_log
from hpcjob.logs.endless import EndlessGuard
from hpcjob.logs.glue import unglue
from hpcjob.logs.lines import Line, LineParser
from hpcjob.logs.scan import scan
from hpcjob.logs.shapes import MUCH_BYTES, Shapes
from hpcjob.logs.sources import Source
from hpcjob.regular import size_of


class Reader:
    """Reads files one after the other.

    Args:
        shapes: what makes a line interesting.
        hosts: names of hosts, for prefixes such as ``node: ``; NCCL's prefixes add to them.
        pending: whether the next line is wanted whatever it is; see `hpcjob.logs.scan.scan`.
        census: is shown all bytes.
    """

    def __init__(
        self,
        shapes: Shapes,
        *,
        hosts: Iterable[str] = (),
        pending: Callable[[], bool] = lambda: False,
        census: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self._shapes = shapes
        self._hosts = set(hosts)
        self._pending = pending
        self._census = census
        self._bytes = 0

    def file(self, source: Source) -> Iterator[Line]:
        """Give the lines of interest of a file. Raises InputError if it cannot be read."""
        parser = LineParser(str(source.path), rank=source.rank, host=self._host_in(source), hosts=self._hosts)
        self._bytes += size_of(source.path)
        if self._bytes >= MUCH_BYTES:
            self._shapes.sharpen()
        guard = None if source.path.is_file() else EndlessGuard(str(source.path))
        with contextlib.closing(open_log(source.path)) as stream:
            yield from self._lines(stream, parser, guard)

    def stream(self, stream: Stream, name: str) -> Iterator[Line]:
        """Give the lines of interest of a stream. Raises InputError if a line of it does not end."""
        yield from self._lines(stream, LineParser(name, hosts=self._hosts), EndlessGuard(name))

    def _lines(self, stream: Stream, parser: LineParser, guard: EndlessGuard | None) -> Iterator[Line]:
        see = None if guard is None else guard.see
        for number, offset, data in scan(stream, self._shapes, pending=self._pending, census=self._census, see=see):
            for at, piece in unglue(data):
                yield parser.parse(offset + at, piece, number)

    def _host_in(self, source: Source) -> str | None:
        """Return the host that a file is named after, such as dmesg.node07.log, if it is one of the job's."""
        parts = re.split(r"[._]|-(?=\D)", source.path.name)
        return next((part for part in parts if part in self._hosts), None)
