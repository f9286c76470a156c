"""What a process said last, where torchrun alone tells that it failed and only points to a page on the web."""

from __future__ import annotations

from pathlib import Path

from hpcjob.logs.compressed import compression
from hpcjob.logs.events import Event, ProcessEnd
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line, LineParser
from hpcjob.logs.sources import JobFiles, classify
from hpcjob.regular import size_of

_BEFORE_BYTES = 64 * 1024
_HINT = "To enable traceback see"
# Lines of torchrun itself, of the job's script, and of NCCL, which go on after the process has said what troubled it.
_OF_OTHERS = lazy(
    r"torch[./]distributed[./](?:elastic|run|launcher)|torchrun|ChildFailedError|NCCL INFO|^\s*$|^[=-]{10,}$| FAILED$"
    r"|^(?:Failures|Root Cause).*:$|^\s+<NO_OTHER_FAILURES>|^\[\d+\]:$|^Traceback \(|^  |^(?:srun|slurmstepd|hpcjob): "
)


def last_words(event: ProcessEnd) -> Line | None:
    """Return the last line of a process's own before torchrun's table; None if the table tells why, or there is none.

    It is looked for in the rank's own file, if there is one beside, then before the table.
    """
    if event.note is not None and not event.note.startswith(_HINT):
        return None
    return last_line(event, event.rank)


def last_line(event: Event, rank: int | None) -> Line | None:
    """Return the last line of a rank's own, in its file if there is one beside, else before the place of an event."""
    path = Path(event.source)
    own = [] if rank is None else [one.path for one in JobFiles(path.parent).all() if one.rank == rank]
    for file in own:
        lines = _lines(file, size_of(file))
        if lines:
            return lines[-1]
    lines = _lines(path, event.offset, event.line)
    tagged = [line for line in lines if line.rank is not None]
    mine = [line for line in tagged if line.rank == rank]
    return mine[-1] if mine else None if tagged or not lines else lines[-1]


def _lines(path: Path, end: int, number: int | None = None) -> list[Line]:
    """Return the lines of a program before a place in a file, of which ``number`` is the line there."""
    try:
        if not path.is_file() or compression(path) is not None:
            return []
        with path.open("rb") as file:
            start = max(0, end - _BEFORE_BYTES)
            file.seek(start)
            data = file.read(end - start)
    except OSError:
        return []
    parser = LineParser(str(path), rank=classify(path).rank)
    pieces = data.split(b"\n")
    if number is None and not start:
        number = len(pieces)
    first = 0 if number is None else number - len(pieces) + 1
    numbers = [max(0, first + place) if first else 0 for place in range(len(pieces))]
    lines = [parser.parse(start, piece, at) for piece, at in zip(pieces, numbers, strict=True) if piece.strip()]
    return [line for line in lines[1 if start else 0 :] if not _OF_OTHERS.search(line.text)]
