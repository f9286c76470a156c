"""A log in UTF-16, as PowerShell writes it, read as it grows; offsets are then those of the text as UTF-8."""

from __future__ import annotations

import codecs

from hpcjob.logs.file_tail import FileTail
from hpcjob.logs.sources import Source
from hpcjob.logs.wanted import Cutter, Wanted

_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_UNIT_BYTES = 2
_MARK = "\ufeff"


class WideTail(FileTail):
    """One file in UTF-16.

    Args:
        encoding: as `hpcjob.logs.compressed.compression` names it; by ``UTF-16`` the file's mark tells the order.
    """

    def __init__(self, source: Source, encoding: str, *, hosts: set[str] | None, keep_open: bool, wanted: Wanted):
        if encoding == "UTF-16":
            with source.path.open("rb") as file:
                encoding = _MARKS[file.read(_UNIT_BYTES)]
        self._encoding = encoding
        super().__init__(source, hosts=hosts, keep_open=keep_open, wanted=wanted)

    def _cut(self, offset: int, *, skip_first: bool = False) -> Cutter:
        self._decoder = codecs.getincrementaldecoder(self._encoding)(errors="replace")
        return super()._cut(offset, skip_first=skip_first)

    def _text(self, chunk: bytes) -> bytes:
        return self._decoder.decode(chunk).replace(_MARK, "").encode("utf-8", errors="replace")

    def seek(self, offset: int) -> None:
        """Go on from a place, at the start of a character."""
        super().seek(max(0, offset - offset % _UNIT_BYTES - 1) if offset else 0)
