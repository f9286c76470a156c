"""``hpcjob tail``: a job's log, or any log: where it stands, as a table, NCCL's summary, errors, or its lines."""

from __future__ import annotations

import sys

import click

from hpcjob.cli.choosing import complete_log

_ALL = "all"


def _count(context: click.Context, parameter: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == _ALL:
        return value
    if value.isascii() and value.isdigit():
        return int(value) if len(value) < 19 else sys.maxsize  # a file has no more lines
    raise click.BadParameter(f"{value!r} is neither a number nor 'all'", context, parameter)


@click.command(short_help="Follow a job's log: loss, NCCL, errors.")
@click.argument("job", nargs=-1, metavar="[JOB|FILE|DIR|-]...", shell_complete=complete_log)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run has ended.")
@click.option(
    "--loss",
    "view",
    flag_value="loss",
    help="A table: loss, learning rate, tokens/s, TFLOPS and ETA of each iteration.",
)
@click.option("--nccl", "view", flag_value="nccl", help="What NCCL reports, by communicator and host, oddities first.")
@click.option("--errors", "view", flag_value="errors", help="What went wrong, the cause first.")
@click.option("--raw", "view", flag_value="lines", help="The lines as they are.")
@click.option("--rank", metavar="N,N-N", help="Only these ranks: their files, or their lines.")
@click.option("--host", metavar="NAME,NAME", help="Only these hosts: their files, or their lines.")
@click.option(
    "--grep",
    metavar="PATTERN",
    help="Only lines that match this regular expression; as with --raw unless a view is given.",
)
@click.option("--since", metavar="TIME", help="Only what was logged since then: 15m, 2h, 09:30, 2026-11-29T09:30.")
@click.option(
    "-n",
    "--lines",
    "count",
    callback=_count,
    metavar="N|all",
    help="Show the last N rows (20), with --raw lines of each file (10), or all. --nccl and --errors read all.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
def tail(
    job: tuple[str, ...],
    follow: bool,
    view: str | None,
    rank: str | None,
    host: str | None,
    grep: str | None,
    since: str | None,
    count: int | str | None,
    as_json: bool,
) -> None:
    """Show the log of a job, or any log file, directory or pipe.

    JOB is an id, a name, or 'latest' (the default). A path that exists is read as a file or directory, '-' is standard
    input. Without a view: the iterations, what needs attention, NCCL in one line, and on a terminal a line at the
    bottom that shows where the run stands. -f continues through requeues and to the job that continues the run.

    Understood are the logs of neoxlite, GPT-NeoX, DeepSpeed, Megatron, torchtitan, nanoGPT, Hugging Face and the like,
    with the prefixes of pdsh, srun -l, torchrun and mpirun, also compressed.

    \b
    Examples:
      hpcjob tail                       where the newest job stands
      hpcjob tail 12345 -f              follow it until it has ended
      hpcjob tail 12345 --nccl          InfiniBand or sockets, which ranks are up
      hpcjob tail 12345 --errors        why it died
      hpcjob tail 12345 --rank 3 --raw -n 50
                                        the last 50 lines of rank 3
      hpcjob tail 12345 --host node07 --since 15m --grep WARN
      hpcjob tail train.log --loss -n all --json > loss.jsonl
      ssh node tail -f log | hpcjob tail - -f

    \b
    JSON: each object has "event" (docs/logs.md lists them), "source" and
    "offset" (file and byte), and "host", "rank", "time" where known. A field
    that the log does not have is omitted; null is a number that is not finite
    (a loss of NaN).
    """
    from hpcjob.logs.filters import LineFilter, parse_pattern, parse_ranks
    from hpcjob.logs.output import open_output
    from hpcjob.logs.since import parse_since
    from hpcjob.logs.tail import Request, show
    from hpcjob.logs.target import STANDARD_INPUT, Target, resolve

    wanted = LineFilter(
        ranks=None if rank is None else parse_ranks(rank),
        hosts=None if host is None else [name.strip() for name in host.split(",")],
        pattern=None if grep is None else parse_pattern(grep),
        since_s=None if since is None else parse_since(since),
    )
    request = Request(
        view=view or ("lines" if grep is not None else "digest"),
        wanted=wanted,
        number=None if count in (None, _ALL) else int(count or 0),
        everything=count == _ALL or (since is not None and count is None),
        follow=follow,
    )
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 still shows the rest
    output = open_output(sys.stdout, json=as_json)
    if job == (STANDARD_INPUT,):
        show(Target(), request, output, pipe=(sys.stdin.fileno(), "stdin"))
        return
    target = resolve(job, may_come=follow)
    if len(target.paths) == 1 and target.paths[0].exists() and not target.paths[0].is_file():
        with target.paths[0].open("rb", buffering=0) as pipe:
            show(Target(), request, output, pipe=(pipe.fileno(), str(target.paths[0])))
        return
    show(target, request, output)
