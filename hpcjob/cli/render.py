"""``hpcjob render``: print the batch script of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcjob.cli.files import write_new
from hpcjob.cli.options import job_options, plans_from_options, show_warnings
from hpcjob.errors import InputError
from neoxlite.common.printable import tell

if TYPE_CHECKING:
    from hpcjob.after import Dependency
    from hpcjob.job import JobFile
    from hpcjob.profile import ClusterProfile


@click.command()
@job_options
@click.option("--output", "-o", metavar="FILE", type=click.Path(path_type=Path), help="Write the script to a file.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option(
    "--template",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Use this template in the place of the scheduler's.",
)
@click.option("--point", type=click.IntRange(min=1), metavar="N", help="Which job of a sweep (default: the first).")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--json", "as_json", is_flag=True, help="Print the script and what it was made from as JSON.")
def render(
    output: Path | None,
    force: bool,
    template: Path | None,
    point: int | None,
    strict: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the batch script of a job.

    JOB is a job file, or the name of one in a `jobs` folder; without it the 2.7B data-parallel run, on the profile
    `local` the quickstart. The script stands by itself: submit it with sbatch, qsub, pjsub or bash.

    \b
    Examples:
      hpcjob render -p abci --nodes 2
      hpcjob render jobs/2.7B/dp.yml -p lab -n 4 -o job.sh && sbatch job.sh
      hpcjob render my.yml -p lab --set train.set.train_iters=100 | less
    """
    import sys

    from hpcjob.render import render_with_notes

    plans = plans_from_options(**options, find_after=lambda job, cluster: _found(job, cluster))
    if point is not None and point > len(plans):
        raise InputError(f"--point: {point}, the sweep has {len(plans)}", hint="give a smaller number")
    plan = plans[(point or 1) - 1]
    if len(plans) > 1 and point is None:
        tell(f"note: the first of {len(plans)} jobs of a sweep; --point 2 is the next")
    if plan.after and plan.profile.scheduler.type in ("local", "pjm"):
        tell("note: after: this script alone waits for no job; hpcjob submit makes the order")
    show_warnings(plan, strict=strict)
    rendered = render_with_notes(plan, template=template)
    for note in rendered.notes:
        tell(f"note: {note}")
    if output is not None:
        write_new(output, rendered.script, force)
    if as_json:
        import msgspec

        document = {"script": rendered.script, "notes": rendered.notes, "plan": plan}
        text = msgspec.json.format(msgspec.json.encode(document, enc_hook=str), indent=2)
        sys.stdout.buffer.write(text + b"\n")
    elif output is None:
        # Bytes: the script is UTF-8 whatever the locale of the shell.
        sys.stdout.buffer.write(rendered.script.encode())


def _found(job: JobFile, cluster: ClusterProfile) -> tuple[list[Dependency], list[str]]:
    from hpcjob.tracking.dependencies import found

    return found(job, cluster, ask=False)
