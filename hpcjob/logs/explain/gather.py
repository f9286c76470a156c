"""Read all logs of a job once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hpcjob.logs.compressed import Stream
from hpcjob.logs.explain.evidence import Evidence
from hpcjob.logs.explain.flight.find import read_all
from hpcjob.logs.lines import Line
from hpcjob.logs.reading import Reader
from hpcjob.logs.rulebook import Rulebook, load_errors
from hpcjob.logs.sources import Source
from hpcjob.regular import size_of


def gather(
    sources: Iterable[Source],
    *,
    book: Rulebook | None = None,
    hosts: Iterable[str] = (),
    dumps: Iterable[Path] = (),
) -> Evidence:
    """Return what the files say.

    Args:
        book: the rules about errors; the shipped ones if None.
        hosts: names of hosts, for prefixes such as ``node: ``.
        dumps: files of PyTorch's flight recorder.

    Raises:
        InputError: a file cannot be read.
    """
    evidence = Evidence(book or load_errors())
    reader = Reader(evidence.shapes(), hosts=hosts, pending=evidence.pending, census=evidence.census)
    for source in sources:
        if source.rank is not None and size_of(source.path):
            evidence.seen.setdefault(source.rank, None)
        _take(reader.file(source), evidence)
    evidence.settle()
    evidence.dumps, evidence.unread = read_all(dumps)
    for dump in evidence.dumps.values():
        if dump.nccl:
            evidence.software.setdefault("nccl", dump.nccl)
    return evidence


def gather_stream(stream: Stream, name: str, *, book: Rulebook | None = None) -> Evidence:
    """Do the same for one stream, such as standard input."""
    evidence = Evidence(book or load_errors())
    reader = Reader(evidence.shapes(), pending=evidence.pending, census=evidence.census)
    _take(reader.stream(stream, name), evidence)
    evidence.settle()
    return evidence


def _take(lines: Iterable[Line], evidence: Evidence) -> None:
    for line in lines:
        evidence.read(line)
    evidence.end_of_file()
