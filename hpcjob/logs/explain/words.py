"""A verdict as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from hpcjob.logs.explain.verdict import Quote, Verdict
from hpcjob.logs.fold import ranges
from hpcjob.logs.sources import short_name
from hpcjob.logs.topics import SLOW

_QUOTES = 6
_OTHERS = 3
_WARNINGS = 6
_ODD = 5


def lines_of(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Give the verdict as (role, line)."""
    role = "cause" if verdict.code not in (0, SLOW) else "warning" if verdict.code else ""
    yield role, f"cause      {verdict.cause}"
    who = ", ".join(filter(None, (describe_ranks(verdict), verdict.time)))
    if who:
        yield "", f"first      {who}"
    for quote in verdict.evidence[:_QUOTES]:
        yield "", f"evidence   {_place(quote, verdict)}: {quote.text}"
    for text in verdict.odd[:_ODD]:
        yield "", f"odd one    {text}"
    if verdict.fix:
        yield "", f"fix        {verdict.fix}"
    if verdict.exclude:
        yield "", f"exclude    {','.join(verdict.exclude)}"
    for where, text in verdict.exclude_with.items():
        yield "", f"           {where}: {text}"
    if verdict.cost_gpu_hours:  # a run of seconds, or without GPUs, has cost nothing to speak of
        yield "", f"cost       {verdict.cost_gpu_hours:g} GPU-hours since {_since(verdict)}"
    for text in verdict.others[:_OTHERS]:
        yield "", f"also       {text}"
    for text, times in list(verdict.followers.items())[:_OTHERS]:
        yield "follower", f"follower   {text}" + (f" (x{times})" if times > 1 else "")
    for text in verdict.warnings[:_WARNINGS]:
        if text != verdict.cause:
            yield "warning", f"warning    {text}"
    yield "", f"exit code  {verdict.code}: {verdict.meaning}"


def describe_ranks(verdict: Verdict) -> str:
    """Return who failed, in words."""
    if len(verdict.ranks) > 1:
        is_told = verdict.rank is not None and verdict.rank != min(verdict.ranks)
        return f"ranks {ranges(verdict.ranks)}" + (f", rank {verdict.rank} first" if is_told else "")
    where = f" on {verdict.host}" if verdict.host else ""
    return f"rank {verdict.rank}{where}" if verdict.rank is not None else verdict.host or ""


def _since(verdict: Verdict) -> str:
    saved = verdict.last_checkpoint
    since = "the start" if saved is None else f"the checkpoint of iteration {saved}"
    return since + ("" if verdict.last_iteration is None else f" (iteration {verdict.last_iteration})")


def _place(quote: Quote, verdict: Verdict) -> str:
    """Return file and line, and who and when where ``first`` does not say it already."""
    place = short_name(quote.source) + ("" if quote.line is None else f":{quote.line}")
    rank = None if quote.rank is None or quote.rank == verdict.rank else f"rank {quote.rank}"
    host = None if quote.host == verdict.host else quote.host
    time = None if quote.time == verdict.time else quote.time
    who = ", ".join(filter(None, (rank, host, time)))
    return f"{place} [{who}]" if who else place
