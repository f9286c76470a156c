"""``hpcjob tail``: a job's log, or any log, as lines, iteration table, NCCL summary or errors."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hpcjob.logs.output import Output
    from hpcjob.logs.sources import Source
    from hpcjob.logs.target import Target
    from hpcjob.logs.views import View, Whole

ALL = -1


def _count(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None or value == "all":
        return ALL if value else None
    if value.isascii() and value.isdigit():
        return int(value) if len(value) < 19 else sys.maxsize  # a file has no more lines
    raise click.BadParameter(f"{value!r} is neither a number nor 'all'", context, parameter)


@click.command(short_help="Follow a job's log: loss, NCCL, errors.")
@click.argument("job", nargs=-1, metavar="[JOB|FILE|DIR|-]...", shell_complete=lambda *_: [_file_completion()])
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, until the job has ended.")
@click.option("--loss", "view", flag_value="loss", help="One line an iteration: loss, rate, tokens/s, TFLOPS, ETA.")
@click.option("--nccl", "view", flag_value="nccl", help="What NCCL says: version, network, paths, ranks, warnings.")
@click.option("--errors", "view", flag_value="errors", help="What went wrong, the cause first.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Only this rank: its file, or its lines.")
@click.option(
    "-n",
    "--lines",
    "count",
    callback=_count,
    metavar="N|all",
    help="The last N lines of each file (10), or iterations with --loss (20); --nccl and --errors read all.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
def tail(
    job: tuple[str, ...], follow: bool, view: str | None, rank: int | None, count: int | None, as_json: bool
) -> None:
    """Show the log of a job, or any log file, directory or pipe.

    JOB is an id, a name, or 'latest' (the default). A path that exists is read as a file or directory, '-' is standard
    input. Logs of neoxlite, GPT-NeoX, DeepSpeed and Megatron are understood; prefixes of pdsh, srun -l, torchrun and
    mpirun are too.

    \b
    Examples:
      hpcjob tail                       the last lines of the newest job
      hpcjob tail 12345 -f              follow it until it has ended
      hpcjob tail latest -f --loss      a line for each logged iteration
      hpcjob tail 12345 --nccl          InfiniBand or sockets, which ranks are up
      hpcjob tail 12345 --errors        why it died
      hpcjob tail 12345 --rank 3 -n 50  the last 50 lines of rank 3
      hpcjob tail train.log --loss -n all --json > loss.jsonl
      ssh node tail -f log | hpcjob tail - -f --loss

    \b
    JSON: each object has "event" (line, iteration, validation, checkpoint,
    finding, traceback, process_end), "source" and "offset" (file and byte), and
    "host", "rank", "time" where known. A field that the log does not tell is
    left out; null is a number that is not finite (a loss of NaN).
    """
    from hpcjob.logs.output import open_output
    from hpcjob.logs.target import STANDARD_INPUT, Target, resolve

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 still shows the rest
    output = open_output(sys.stdout, json=as_json)
    if job == (STANDARD_INPUT,):
        _show_pipe(sys.stdin.fileno(), "stdin", Target(), view, output, rank, count, follow)
        return
    target = resolve(job)
    if len(target.paths) == 1 and _is_pipe(target.paths[0]):
        with target.paths[0].open("rb", buffering=0) as pipe:
            _show_pipe(pipe.fileno(), str(target.paths[0]), Target(), view, output, rank, count, follow)
        return
    _show_files(target, view, output, rank, count, follow)


def _show_files(
    target: Target, name: str | None, output: Output, rank: int | None, count: int | None, follow: bool
) -> None:
    from hpcjob.logs.follow import Follower
    from hpcjob.logs.show import show_files

    if rank is not None and not (follow and not target.ended()):
        _check_rank(rank, target.ranks(), target.directory)
    provider = target.provider(name or "lines", rank)
    sources = list(provider())
    if not any(source.path.exists() for source in sources):
        where = target.directory or ", ".join(map(str, target.paths))
        of_rank = "" if rank is None else f" of rank {rank}"
        click.echo(f"hpcjob tail: no log{of_rank} yet in {where}" + ("; waiting" if follow else ""), err=True)
        if not follow:
            return
    view = _view(
        name, target, output, rank, count, several=len(sources) > 1 or (target.directory is not None and rank is None)
    )
    if view.whole is not None and not follow and _limit(count, view) is None:
        _show_whole([source for source in sources if source.path.exists()], view, view.whole, output, target.hosts())
        _say_if_nothing(view, rank, count)
        return
    follower = Follower(provider, gate=view.gate, hosts=target.hosts())
    show_files(follower, view, output, count=_limit(count, view), ended=target.ended if follow else None)
    _say_if_nothing(view, rank, count)


def _show_whole(sources: list[Source], view: View[Any], whole: Whole, output: Output, hosts: list[str]) -> None:
    """Read all of the files, which by shape is many times faster than line by line."""
    from hpcjob.logs.reading import Reader
    from hpcjob.logs.show import show_stream

    reader = Reader(whole.shapes(), hosts=hosts, pending=whole.pending)
    show_stream((line for source in sources for line in reader.file(source)), view, output, count=None, follow=False)


def _show_pipe(
    fd: int,
    source: str,
    target: Target,
    name: str | None,
    output: Output,
    rank: int | None,
    count: int | None,
    follow: bool,
) -> None:
    from hpcjob.logs.follow import read_stream
    from hpcjob.logs.show import show_stream

    view = _view(name, target, output, rank, count, several=False)
    show_stream(read_stream(fd, source, gate=view.gate), view, output, count=_limit(count, view), follow=follow)
    _say_if_nothing(view, rank, count)


def _say_if_nothing(view: View[Any], rank: int | None, count: int | None) -> None:
    from hpcjob.logs.views import LossView, RankView

    if isinstance(view, RankView):
        if rank is not None and not view.seen:
            _check_rank(rank, view.others)
            click.echo(f"hpcjob tail: no line of rank {rank}: its file is empty, or has no rank prefixes", err=True)
    elif isinstance(view, LossView) and not view.shown and count != 0:
        click.echo("hpcjob tail: no iteration and no loss found (without --loss the lines are shown)", err=True)


def _check_rank(rank: int, known: Collection[int], directory: Path | None = None) -> None:
    """Refuse a rank that the job does not have, where others tell which it has."""
    from hpcjob.errors import InputError
    from hpcjob.logs.fold import ranges

    if known and rank not in known:
        where = "" if directory is None else f" in {directory}"
        raise InputError(f"there is no rank {rank}{where}", hint=f"Ranks with a log: {ranges(known)}.")


def _limit(count: int | None, view: View[Any]) -> int | None:
    if count == ALL:
        return None
    return view.default_count if count is None else count


def _view(
    name: str | None, target: Target, output: Output, rank: int | None, count: int | None, *, several: bool
) -> View[Any]:
    from hpcjob.logs.views import LinesView, LossView, RankView, ReportView

    view: View[Any]
    if name == "loss":
        view = LossView(output, _metrics(target, count))
    elif name == "nccl":
        from hpcjob.logs.nccl import NcclReport

        view = ReportView(output, NcclReport(), "no line of NCCL found (NCCL_DEBUG=INFO makes it tell)")
    elif name == "errors":
        from hpcjob.logs.failures import FailureReport

        view = ReportView(output, FailureReport(target.ending), "no error found")
    else:
        view = LinesView(output, headings=several)
    return view if rank is None else RankView(view, rank)


def _metrics(target: Target, count: int | None) -> Any:
    from hpcjob.logs.metrics import Metrics, sequence_length_of

    metrics = Metrics(target.metrics, whole=count == ALL)
    metrics.poll()
    for source in target.provider("loss", None)():
        if metrics.sequence_length is None:
            metrics.sequence_length = sequence_length_of(source.path)
    return metrics


def _is_pipe(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _file_completion() -> Any:
    from click.shell_completion import CompletionItem

    return CompletionItem("", type="file")
