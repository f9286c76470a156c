"""From a target and what is asked of it to a view that reads the right files."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcjob.errors import InputError
from hpcjob.logs.absence import check_ranks, say, say_if_nothing
from hpcjob.logs.events import Iteration
from hpcjob.logs.filtered_view import FilteredView, wanted_by
from hpcjob.logs.filters import LineFilter
from hpcjob.logs.fold import ranges
from hpcjob.logs.follow import Follower, read_stream
from hpcjob.logs.lazy import lazy
from hpcjob.logs.metrics import Metrics, sequence_length_of
from hpcjob.logs.output import Output
from hpcjob.logs.parse import parse
from hpcjob.logs.request import Request as Request
from hpcjob.logs.show import show_files, show_stream
from hpcjob.logs.sources import Source, attempt_of
from hpcjob.logs.target import Target
from hpcjob.logs.views import LinesView, LossView, View, Whole
from hpcjob.logs.wanted import Wanted

if TYPE_CHECKING:
    from hpcjob.logs.digest import Digest
    from hpcjob.logs.failures import FailureReport
    from hpcjob.logs.progress import Progress

_HEAD_BYTES = 4 * 1024 * 1024
_SMALL_FILE_BYTES = 1_000_000
_WALLTIME = lazy(r"^walltime: ['\"]?([^'\"\n]{1,40})", re.MULTILINE)
_LINK = lazy(r"^ {1,8}link_gbps: (\d{1,5}(?:\.\d+)?)\b", re.MULTILINE)


def show(target: Target, request: Request, output: Output, *, pipe: tuple[int, str] | None = None) -> None:
    """Show a view of files, or of a pipe (its descriptor and name).

    Raises:
        InputError: a file cannot be read, or there is no such rank or host.
    """
    if pipe is not None:
        _show_pipe(pipe, request, output)
        return
    wanted = request.wanted
    if wanted.ranks is not None and not (request.follow and not target.ended()):
        check_ranks(wanted.ranks, target.ranks(), target.directory)
    provider = target.provider(request.view, wanted.ranks, wanted.hosts)
    sources = list(provider())
    of_rank = "" if wanted.ranks is None else f" of rank {ranges(wanted.ranks)}"
    is_told_later = False
    if not any(source.path.exists() for source in sources):
        status = target.status()
        # While it is followed `Waits` tells what the job waits for, and what changes.
        is_told_later = request.follow and status is not None and not status.state.ended
        say(target.no_log(None if is_told_later else status, of_rank) + ("; waiting" if request.follow else ""))
        if not request.follow:
            return
    if wanted.hosts is not None and target.directory is None:
        _learn_hosts(sources, wanted)
    view = None
    if request.view == "digest":
        _show_digest(target, request, output)
    else:
        view = _show_view(target, request, output, sources)
    sources = list(provider())
    if is_told_later and not any(source.path.exists() for source in sources):
        say(target.no_log(target.status(), of_rank))
    else:
        say_if_nothing(view, request, output, sources, target)


def _show_view(target: Target, request: Request, output: Output, sources: list[Source]) -> View[Any]:
    several = len(sources) > 1 or (target.directory is not None and request.wanted.ranks is None)
    view = _view(target, request, output, several=several)
    count = request.limit(view.default_count)
    if view.whole is not None and not request.follow and count is None and not request.wanted.active:
        _show_whole([source for source in sources if source.path.exists()], view, view.whole, output, target.hosts())
        return view
    provider = target.provider(request.view, request.wanted.ranks, request.wanted.hosts)
    follower = Follower(provider, wanted=wanted_by(view), hosts=target.hosts())
    _tell_of_next_jobs(target, output, view)
    show_files(
        follower,
        view,
        output,
        count=count,
        ended=target.ended if request.follow else None,
        since_s=request.wanted.since_s,
    )
    return view


def _show_digest(target: Target, request: Request, output: Output) -> None:
    from hpcjob.logs.digest import PLAIN_LINES
    from hpcjob.logs.digest_show import show_digest

    metrics = _metrics(target, whole=request.everything, wanted=request.wanted)
    progress = _progress(target)
    lines = target.provider("lines", request.wanted.ranks, request.wanted.hosts)
    main = {str(source.path) for source in lines()}
    digest = _digest(target, request, output, metrics, progress, main)
    provider = target.provider("digest", request.wanted.ranks, request.wanted.hosts)
    count = request.limit(None if output.json else digest.default_count)
    follower = Follower(provider, wanted=digest.wanted(rows=count is None), hosts=target.hosts())
    if target.run is not None:
        from hpcjob.logs.events import Job

        def changed(before: Any, after: Any) -> None:
            digest.job_changed(Job(action="followed", id=after.id, after=before.id), after.walltime_s)
            metrics.take_from(after.jobdir / "metrics.jsonl")
            main.update(str(source.path) for source in lines())

        target.run.on_change = changed
    ended = target.ended if request.follow else None
    plain = sys.maxsize if request.everything else PLAIN_LINES if request.number is None else request.number
    partly = show_digest(
        follower, digest, output, count=count, ended=ended, plain=plain, since_s=request.wanted.since_s
    )
    if partly and not request.follow:
        some = f"{partly[0]}{f' and {len(partly) - 1} more' if len(partly) > 1 else ''}"
        say(f"of {some} only the beginning and the end were read (-n all reads all; --errors and --nccl too)")


def _digest(
    target: Target, request: Request, output: Output, metrics: Metrics, progress: Progress, main: Collection[str]
) -> Digest:
    from hpcjob.logs.digest import Digest

    text = _read_small(None if target.directory is None else target.directory / "profile.yml")
    link = _LINK.search(text)
    return Digest(
        output,
        LossView(output, metrics, one_run=_is_one_run(target)),
        _failures(target),
        progress,
        main=lambda path: not main or path in main,
        link_gbps=None if link is None else float(link[1]),
        wanted=request.wanted,
    )


def _progress(target: Target) -> Progress:
    """Return what the job's own files tell beforehand: the walltime, how often the run saves."""
    from hpcjob.logs.progress import Progress, checkpoint_interval

    job = _read_small(None if target.directory is None else target.directory / "job.yml")
    walltime_s = target.walltime_s
    if walltime_s is None and (match := _WALLTIME.search(job)) is not None:
        from hpcjob.units import parse_walltime_s

        try:
            walltime_s = parse_walltime_s(match[1].strip())
        except InputError:
            walltime_s = None
    return Progress(walltime_s=walltime_s, every=checkpoint_interval(job))


def _read_small(path: Path | None) -> str:
    try:
        if path is None or path.stat().st_size > _SMALL_FILE_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _show_whole(sources: list[Source], view: View[Any], whole: Whole, output: Output, hosts: list[str]) -> None:
    """Read all of the files, which by shape is many times faster than line by line."""
    from hpcjob.logs.reading import Reader

    reader = Reader(whole.shapes(), hosts=hosts, pending=whole.pending)
    show_stream((line for source in sources for line in reader.file(source)), view, output, count=None, follow=False)


def _show_pipe(pipe: tuple[int, str], request: Request, output: Output) -> None:
    if request.view == "digest":
        from hpcjob.logs.digest_show import show_digest_of

        digest = _digest(Target(), request, output, Metrics(None), _progress(Target()), ())
        count = request.limit(None if output.json or request.follow else digest.default_count)
        show_digest_of(pipe, digest, output, count=count, follow=request.follow or request.everything)
        say_if_nothing(None, request, output, ())
        return
    view = _view(Target(), request, output, several=False)
    count = request.limit(view.default_count)
    wanted = wanted_by(view)
    if isinstance(view, LossView) and not request.follow:
        wanted = Wanted(view.shapes(count))
    show_stream(read_stream(*pipe, wanted=wanted), view, output, count=count, follow=request.follow)
    say_if_nothing(view, request, output, ())


def _view(target: Target, request: Request, output: Output, *, several: bool) -> View[Any]:
    view: View[Any]
    if request.view == "loss":
        metrics = _metrics(target, whole=request.everything, wanted=request.wanted)
        view = LossView(output, metrics, one_run=_is_one_run(target))
    elif request.view == "nccl":
        from hpcjob.logs.nccl import NcclReport
        from hpcjob.logs.report_view import ReportView

        view = ReportView(output, NcclReport(), "no line of NCCL found (NCCL_DEBUG=INFO makes it print them)")
    elif request.view == "errors":
        from hpcjob.logs.report_view import ReportView

        view = ReportView(output, _failures(target), "no error found")
    else:
        view = LinesView(output, headings=several)
    return FilteredView(view, request.wanted) if request.wanted.active else view


def _failures(target: Target) -> FailureReport:
    from hpcjob.logs.failures import FailureReport
    from hpcjob.logs.rulebook import load_errors, own_files

    book = load_errors(found=own_files())
    return FailureReport(book=book) if target.directory is None else FailureReport(target.ending, book=book)


def _is_one_run(target: Target) -> bool:
    """Whether all files are of one run: not those of an array's elements, nor files that were named together."""
    if target.directory is None:
        return False
    paths = [source.path for source in target.provider("lines", None)()]
    return len({attempt_of(path) or path.parent for path in paths}) < 2


def _metrics(target: Target, *, whole: bool, wanted: LineFilter | None = None) -> Metrics:
    """Return the trainer's exact values, which also tell when an iteration was logged."""
    metrics = Metrics(target.metrics, whole=whole)
    metrics.poll()
    if wanted is not None and target.metrics is not None:
        wanted.time_of = lambda line: next(
            (metrics.time_of(event) for event in parse(line) if isinstance(event, Iteration)), None
        )
    for source in target.provider("loss", None)():
        if metrics.sequence_length is None:
            metrics.sequence_length = sequence_length_of(source.path)
    return metrics


def _tell_of_next_jobs(target: Target, output: Output, view: View[Any]) -> None:
    if target.run is None:
        return

    def changed(before: Any, after: Any) -> None:
        if isinstance(view, LossView):
            view.new_job()
        say(f"job {before.id} has ended; the run continues in job {after.id}")

    target.run.on_change = changed


def _learn_hosts(sources: Iterable[Source], wanted: LineFilter) -> None:
    """Read which rank runs where from the beginning of logs, where NCCL tells it: other prefixes have the rank only."""
    from hpcjob.logs.file_tail import FileTail
    from hpcjob.logs.shapes import Interest, Shapes
    from hpcjob.logs.wanted import Wanted

    for source in sources:
        if source.path.is_file():
            tail = FileTail(source, wanted=Wanted(Shapes([(Interest.ALL, [b" nranks ", b" nRanks "])])))
            for line in tail.poll(_HEAD_BYTES):
                wanted.identity.read(line)
            tail.close()
