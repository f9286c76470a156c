"""Put together again the long line of PyTorch's watchdog, which a terminal, a logger or ``mpirun --tag-output`` cuts.

Its parts come in the lines that follow, with the prefix of the first one or with none::

    [rank2]:[E424 01:11:21.16 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNC
    CL(SeqNum=4, OpType=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 milliseconds before
"""

from __future__ import annotations

import msgspec

from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line

_BEGINS = ("aught collective operation timeout", "Watchdog caught collective")
_ENDS = lazy(r"Timeout\(ms\)=\d+\)")
_LINES_AFTER = 3


class Wrapped:
    """Lines in, whole lines out; of each file at most a few are held back."""

    def __init__(self) -> None:
        self._held: dict[str, list[Line]] = {}

    def __bool__(self) -> bool:
        """Whether any line waits for its rest."""
        return bool(self._held)

    def __contains__(self, source: str) -> bool:
        """Whether a line of this file waits for its rest."""
        return source in self._held

    def take(self, line: Line) -> list[Line]:
        """Return the lines that are whole with ``line``, in their order."""
        held = self._held.get(line.source)
        if held is None:
            if not any(words in line.text for words in _BEGINS) or _ENDS.search(line.text):
                return [line]
            self._held[line.source] = [line]
            return []
        held.append(line)
        first, *rest = held
        joined = first.text
        for part in (part for part in rest if _is_of(part, first)):
            joined = _joined(joined, part.text)
        is_whole = _ENDS.search(joined) is not None
        if not is_whole and len(rest) < _LINES_AFTER:
            return []
        del self._held[line.source]
        if is_whole:
            first = msgspec.structs.replace(first, text=joined)
            rest = [part for part in rest if not _is_of(part, first)]
        return [first, *(whole for part in rest for whole in self.take(part))]

    def finish(self) -> list[Line]:
        """Return what waits for a rest that does not come."""
        lines = [line for held in self._held.values() for line in held]
        self._held.clear()
        return lines


def _is_of(part: Line, first: Line) -> bool:
    return part.rank is None or part.rank == first.rank


def _joined(text: str, more: str) -> str:
    """A word may be cut anywhere; a space at which the line was cut is not there any more."""
    text = text.rstrip()
    return text + (" " if text.endswith((":", ",")) else "") + more.lstrip()
