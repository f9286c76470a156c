"""``hpcjob export``: what any trainer's log says, as CSV, JSON lines or TensorBoard event files."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from hpcjob.cli.files import written
from hpcjob.cli.runs import run_options, runs_from_options

if TYPE_CHECKING:
    from hpcjob.report.runs import Run


@click.command(short_help="Turn logs into CSV, JSON lines or TensorBoard files.")
@run_options
@click.option("--csv", "kind", flag_value="csv", help="One row per iteration, to standard output or the file of -o.")
@click.option("--json", "kind", flag_value="json", help="The same as one JSON object a line.")
@click.option("--tensorboard", "kind", flag_value="tensorboard", help="One event file per run, below the folder of -o.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="PATH", help="File, or folder of --tensorboard."
)
def export(
    jobs: tuple[str, ...],
    merge: bool | None,
    first: int | None,
    last: int | None,
    kind: str | None,
    output: Path | None,
) -> None:
    """Turn the iterations in logs of any trainer into files that other programs read.

    JOB is an id, a name, or 'latest' (the default); files may be compressed, '*' names several, '-' is standard input.
    Restarts of a run are joined: the iterations that count are written, 'attempt' says which start made them.

    \b
    Examples:
      hpcjob export latest --csv > run.csv
      hpcjob export 'logs/*.out.gz' --tensorboard -o board
      tensorboard --logdir board
      hpcjob export 12345 --json | jq -r 'select(.loss == null) | .iteration'

    \b
    CSV: run, attempt, iteration, the numbers of the log with their unit in the
    name, epoch, time_s (since 1970), validation_loss, checkpoint, restart,
    test_loss. A cell is empty where the log has nothing; nan and inf are what
    it has. JSON: what the log does not have is omitted, null stands for a
    number that is not finite.
    """
    from hpcjob.errors import InputError

    if kind is None:
        raise InputError("export: into what?", hint="add --csv, --json or --tensorboard")
    if kind == "tensorboard" and output is None:
        raise InputError("--tensorboard: where to?", hint="name a folder: -o FOLDER")
    runs = runs_from_options(jobs, merge, first, last)
    if kind == "tensorboard" and output is not None:
        _event_files(runs, output)
    elif output is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", errors="replace")
        _write_rows(runs, kind, sys.stdout)
    else:
        with written(output) as file:
            _write_file(runs, kind, file)


def _write_file(runs: Sequence[Run], kind: str, file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
    _write_rows(runs, kind, text)
    text.flush()
    text.detach()


def _write_rows(runs: Sequence[Run], kind: str, stream: IO[str]) -> None:
    from hpcjob.report.export import write_csv, write_json

    (write_csv if kind == "csv" else write_json)(runs, stream)


def _event_files(runs: Sequence[Run], folder: Path) -> None:
    from hpcjob.errors import InputError
    from hpcjob.report.event_file import folder_names, write_run

    for run, name in zip(runs, folder_names([run.name for run in runs]), strict=True):
        try:
            path = write_run(run, folder / name)
        except OSError as error:
            raise InputError(
                f"--output {folder}: {error.strerror}", hint="name a folder that you may write or make"
            ) from error
        click.echo(f"{path}: {len(run.table)} iterations", err=True)
