"""``hpcjob plot``: curves of runs in the terminal, as a picture, or as one HTML page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcjob.cli.files import written
from hpcjob.cli.runs import run_options, runs_from_options
from neoxlite.common.printable import tell

if TYPE_CHECKING:
    from hpcjob.report.runs import Run

_PAGES = (".html", ".htm")


@click.command(short_help="Draw losses and rates of runs, or make an HTML report.")
@run_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write this .html, .png, .svg or .pdf; one that exists is replaced.",
)
@click.option("-m", "--metric", "metrics", multiple=True, metavar="NAME", help="Only this quantity; may be repeated.")
@click.option("--log", is_flag=True, help="Logarithmic scale (in the page: a switch).")
@click.option("--json", "as_json", is_flag=True, help="Print numbers instead of curves, one JSON object per run.")
def plot(
    jobs: tuple[str, ...],
    merge: bool | None,
    first: int | None,
    last: int | None,
    output: Path | None,
    metrics: tuple[str, ...],
    log: bool,
    as_json: bool,
) -> None:
    """Draw loss, learning rate, throughput, memory, gradient norm and step time of runs, from any trainer's log.

    JOB is an id, a name, or 'latest' (the default); files may be compressed, '*' names several, '-' is standard input.
    Several runs are compared. Restarts of a run are joined: the iterations that count are drawn. Spikes, restarts and
    checkpoints are marked; docs/plots.md says how they are found.

    Terminal and pictures need the extra hpcjob[report]; the page needs nothing, and no network.

    \b
    Examples:
      hpcjob plot                             the newest job, in the terminal
      hpcjob plot 12345 12399 -o report.html  compare two in a page
      hpcjob plot 'logs/*.out.gz' -m loss     any trainer's logs
      hpcjob plot a.log b.log --merge         b went on where a ended
      hpcjob plot -o loss.svg -m loss -m grad_norm --from 1000
    """
    from hpcjob.errors import InputError

    if as_json and output is not None:
        raise InputError("--json and --output: one of them", hint="--json writes to standard output")
    wanted = _checked(metrics)
    kind = _kind(output)
    runs = runs_from_options(jobs, merge, first, last)
    if as_json:
        _print_json(runs)
    elif output is None:
        from hpcjob.report.terminal import draw

        draw(runs, _present(runs, wanted), sys.stdout, log=log)
    elif kind in _PAGES:
        from hpcjob.report.page import page

        names = _present(runs, wanted)
        with written(output) as file:
            file.write(page(runs, names).encode("utf-8", "replace"))
        click.echo(f"{output}: open it in a browser", err=True)
    else:
        _picture(runs, _present(runs, wanted), output, log=log)


def _checked(metrics: Sequence[str]) -> list[str]:
    """Return the quantities asked for, all if none are. Raises InputError for a name that there is not."""
    from hpcjob.errors import InputError
    from hpcjob.report.quantities import NAMES

    for name in metrics:
        if name not in NAMES:
            raise InputError(f"--metric {name}: there is no such quantity", hint=f"one of: {', '.join(NAMES)}")
    return list(metrics)


def _kind(output: Path | None) -> str | None:
    from hpcjob.errors import InputError
    from hpcjob.report.picture import KINDS

    kind = None if output is None else output.suffix.lower()
    if kind is not None and kind not in (*KINDS, *_PAGES):
        raise InputError(
            f"--output {output}: the name does not say what to make", hint="let it end in .html, .png, .svg or .pdf"
        )
    return kind


def _present(runs: Sequence[Run], wanted: Sequence[str]) -> list[str]:
    """Return the quantities to draw. Raises InputError if none of them is told."""
    from hpcjob.errors import InputError
    from hpcjob.report.runs import told_names

    told = [name for name in wanted if any(run.table.has(name) for run in runs)] if wanted else told_names(runs)
    if not told:
        raise InputError(f"no {' or '.join(wanted)} in these logs", hint=f"they have {', '.join(told_names(runs))}")
    return told


def _picture(runs: Sequence[Run], names: Sequence[str], output: Path, *, log: bool) -> None:
    from hpcjob.report.picture import write_picture

    with written(output) as file:
        complete = write_picture(runs, names, output, file, log=log)
    click.echo(f"{output}: written", err=True)
    if not complete and output.suffix.lower() != ".svg":
        tell("no font here has all letters of the names (fonts-noto-cjk has); .svg needs none")


def _print_json(runs: Sequence[Run]) -> None:
    import json
    from dataclasses import asdict

    from hpcjob.report.summary import spikes_of, summarize

    for run in runs:
        print(json.dumps(asdict(summarize(run, spikes_of(run))), ensure_ascii=False))
