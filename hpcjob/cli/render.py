"""``hpcjob render``: print the batch script of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hpcjob.cli.options import job_options, plan_from_options
from hpcjob.errors import InputError


@click.command()
@job_options
@click.option("--output", "-o", metavar="FILE", type=click.Path(path_type=Path), help="Write the script to a file.")
@click.option("--force", is_flag=True, help="Let --output replace a file that exists.")
@click.option("--template", metavar="FILE", type=click.Path(path_type=Path), help="A template of your own.")
@click.option("--json", "as_json", is_flag=True, help="Print the script and what it was made from as JSON.")
def render(output: Path | None, force: bool, template: Path | None, as_json: bool, **options: Any) -> None:
    """Print the batch script of a job.

    JOB is a job file, or the name of one in a `jobs` folder; without it the 2.7B data-parallel run, on the profile
    `local` the quickstart. The script stands by itself: submit it with sbatch, qsub, pjsub or bash.

    \b
    Examples:
      hpcjob render --profile abci --nodes 2
      hpcjob render jobs/2.7B/dp.yml -p lab -n 4 --launcher torchrun -o job.sh && sbatch job.sh
    """
    import sys

    from hpcjob.render import render_with_notes

    plan, _ = plan_from_options(**options)
    rendered = render_with_notes(plan, template=template)
    for note in rendered.notes:
        click.echo(f"hpcjob: note: {note}", err=True)
    if output is not None:
        _write(output, rendered.script, force)
    if as_json:
        import msgspec

        document = {"script": rendered.script, "notes": rendered.notes, "plan": plan}
        text = msgspec.json.format(msgspec.json.encode(document, enc_hook=str), indent=2)
        sys.stdout.buffer.write(text + b"\n")
    elif output is None:
        # Bytes: the script is UTF-8 whatever the locale of the shell.
        sys.stdout.buffer.write(rendered.script.encode())


def _write(path: Path, script: str, force: bool) -> None:
    from neoxlite.common.files import write_whole

    if path.exists() and not force:
        raise InputError(f"--output: {path} exists", hint="give another name, or --force to replace it")
    try:
        write_whole(path, script, mode=0o755)
    except OSError as error:
        raise InputError(f"--output: {path}: {error.strerror}", hint="give a file in a folder you can write") from None
    click.echo(f"hpcjob: wrote {path}", err=True)
