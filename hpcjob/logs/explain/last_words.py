"""What a process said last, where torchrun alone tells that it failed and only points to a page on the web."""

from __future__ import annotations

from pathlib import Path

from hpcjob.logs.compressed import compression
from hpcjob.logs.events import ProcessEnd
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line, LineParser
from hpcjob.logs.sources import JobFiles, classify

_BEFORE_BYTES = 64 * 1024
_HINT = "To enable traceback see"
# Lines of torchrun itself, and of NCCL, which go on after the process has said what troubled it.
_OF_OTHERS = lazy(
    r"torch[./]distributed[./](?:elastic|run|launcher)|torchrun|ChildFailedError|NCCL INFO|^\s*$|^[=-]{10,}$| FAILED$"
    r"|^(?:Failures|Root Cause).*:$|^\s+<NO_OTHER_FAILURES>|^\[\d+\]:$|^Traceback \(|^  |^(?:srun|slurmstepd): "
)


def last_words(event: ProcessEnd) -> Line | None:
    """Return the last line of a process's own before torchrun's table; None if the table tells why, or there is none.

    It is looked for in the rank's own file, if there is one beside, then before the table.
    """
    if event.note is not None and not event.note.startswith(_HINT):
        return None
    path = Path(event.source)
    own = [] if event.rank is None else [one.path for one in JobFiles(path.parent).all() if one.rank == event.rank]
    for file in own:
        lines = _lines(file, file.stat().st_size if file.is_file() else 0)
        if lines:
            return lines[-1]
    lines = _lines(path, event.offset, event.line)
    tagged = [line for line in lines if line.rank is not None]
    mine = [line for line in tagged if line.rank == event.rank]
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
    first = 0 if number is None else number - len(pieces) + 1
    lines = [parser.parse(start, piece, max(0, first + place)) for place, piece in enumerate(pieces) if piece.strip()]
    return [line for line in lines[1 if start else 0 :] if not _OF_OTHERS.search(line.text)]
