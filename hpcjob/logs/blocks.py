"""Chunks of a log as blocks of whole lines."""

from __future__ import annotations

from typing import NamedTuple

from hpcjob.logs.lines import LINE_LIMIT_BYTES


class Cut(NamedTuple):
    """A block of whole lines; or, unless it ``ends`` there, what a bar has shown of a line that goes on."""

    offset: int
    data: bytes
    ends: bool = True


class BlockCutter:
    """Cut chunks into blocks of whole lines; a line longer than the limit is cut, so memory stays bounded.

    Of a progress bar that is longer, an epoch of Lightning's or tqdm's, each part comes as a block of its own.
    """

    def __init__(self, offset: int, *, skip_first: bool) -> None:
        self.carried = b""
        self._lost = 0  # bytes of the carried line that were dropped
        self._offset = offset
        self._skip = skip_first

    def feed(self, chunk: bytes) -> list[Cut]:
        end = chunk.rfind(b"\n")
        if end < 0:
            return self._keep(chunk)
        found: list[Cut] = []
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

    def finish(self) -> list[Cut]:
        found = [self._take(self.carried)] if self.carried and not self._skip else []
        self._skip = False
        return found

    def _take(self, block: bytes) -> Cut:
        offset = self._offset
        self._offset += len(block) + self._lost + 1
        self.carried, self._lost = b"", 0
        return Cut(offset, block)

    def _keep(self, data: bytes) -> list[Cut]:
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
        found = [Cut(self._offset, whole[:shown], ends=False)]
        self._offset += shown + self._lost
        self._lost = len(whole) - shown - len(self.carried)
        return found
