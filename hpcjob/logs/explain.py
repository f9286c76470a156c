"""Read all logs of a job once and say why it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from hpcjob.logs.compressed import Stream
from hpcjob.logs.evidence import Evidence
from hpcjob.logs.lines import Line
from hpcjob.logs.reading import Reader
from hpcjob.logs.rulebook import Rulebook, load_errors
from hpcjob.logs.sources import Source
from hpcjob.logs.verdict import Quote, Verdict, describe_ranks

_QUOTES = 6
_OTHERS = 3
_WARNINGS = 6


def gather(sources: Iterable[Source], *, book: Rulebook | None = None, hosts: Iterable[str] = ()) -> Evidence:
    """Return what the files say.

    Args:
        book: the rules about errors; the shipped ones if None.
        hosts: names of hosts, for prefixes such as ``node: ``.

    Raises:
        InputError: a file cannot be read.
    """
    evidence = Evidence(book or load_errors())
    reader = Reader(evidence.shapes(), hosts=hosts, pending=evidence.pending, census=evidence.census)
    for source in sources:
        if source.rank is not None and source.path.stat().st_size:
            evidence.seen.setdefault(source.rank, None)
        _take(reader.file(source), evidence)
    return evidence


def gather_stream(stream: Stream, name: str, *, book: Rulebook | None = None) -> Evidence:
    """Do the same for one stream, such as standard input."""
    evidence = Evidence(book or load_errors())
    reader = Reader(evidence.shapes(), pending=evidence.pending, census=evidence.census)
    _take(reader.stream(stream, name), evidence)
    return evidence


def _take(lines: Iterable[Line], evidence: Evidence) -> None:
    for line in lines:
        evidence.read(line)
    evidence.end_of_file()


def lines_of(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Give the verdict as (role, line) for people."""
    role = "cause" if verdict.code not in (0, 78) else "warning" if verdict.code else ""
    yield role, f"cause      {verdict.cause}"
    who = ", ".join(filter(None, (describe_ranks(verdict), verdict.time)))
    if who:
        yield "", f"first      {who}"
    for quote in verdict.evidence[:_QUOTES]:
        yield "", f"evidence   {_place(quote)}: {quote.text}"
    if verdict.fix:
        yield "", f"fix        {verdict.fix}"
    if verdict.exclude:
        yield "", f"exclude    {','.join(verdict.exclude)}"
    if verdict.cost_gpu_hours is not None:
        since = (
            "the start" if verdict.last_checkpoint is None else f"the checkpoint of iteration {verdict.last_checkpoint}"
        )
        yield "", f"cost       {verdict.cost_gpu_hours:g} GPU-hours since {since} (iteration {verdict.last_iteration})"
    for text in verdict.others[:_OTHERS]:
        yield "", f"also       {text}"
    for text, times in list(verdict.followers.items())[:_OTHERS]:
        yield "follower", f"follower   {text} (x{times})"
    for text in verdict.warnings[:_WARNINGS]:
        if text != verdict.cause:
            yield "warning", f"warning    {text}"
    yield "", f"exit code  {verdict.code}: {verdict.meaning}"


def _place(quote: Quote) -> str:
    line = "" if quote.line is None else f":{quote.line}"
    return f"{Path(quote.source).name or quote.source}{line}"
