"""What the commands about runs share: the argument JOB, which of the logs are one run, which iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from hpcjob.cli.choosing import complete_log
from neoxlite.common.printable import printable, tell

if TYPE_CHECKING:
    from hpcjob.report.runs import Run


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument JOB and the options that choose runs. Pass them on to `runs_from_options`."""
    for option in (
        click.option("--to", "last", type=click.IntRange(min=0), metavar="N", help="Up to this iteration."),
        click.option("--from", "first", type=click.IntRange(min=0), metavar="N", help="From this iteration on."),
        click.option(
            "--merge/--no-merge",
            default=None,
            help="Treat all logs as one run, or each as its own. Default: detect restarts.",
        ),
        click.argument("jobs", nargs=-1, metavar="[JOB|FILE|DIR|GLOB|-]...", shell_complete=complete_log),
    ):
        function = option(function)
    return function


def runs_from_options(jobs: Sequence[str], merge: bool | None, first: int | None, last: int | None) -> list[Run]:
    """Return the runs that are meant, each with iterations; what a reader must know of them is said on stderr.

    Raises:
        UnknownJobError: neither a path nor a job.
        InputError: a file cannot be read, or there are no iterations.
    """
    from hpcjob.report.named import load_runs, require_iterations
    from hpcjob.report.runs import between

    loaded = load_runs(jobs, merge=merge)
    runs = require_iterations(loaded)
    for run in loaded:
        for note in run.notes if len(run.table) else ["no iteration found; skipped"]:
            tell(f"{printable(run.name)}: {note}")
    if first is None and last is None:
        return runs
    return require_iterations([between(run, first or 0, last) for run in runs])
