"""``hpcjob interactive``: a shell on compute nodes."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from hpcjob.cli.options import job_options, plans_from_options
from neoxlite.common.printable import tell

_JOB = "shell.yml"


@click.command()
@job_options
@click.option("--dry-run", "--print", "dry_run", is_flag=True, help="Print the command; nothing is written or started.")
@click.option("--script", is_flag=True, help="With --dry-run: also print the script that becomes the shell.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: command and script as one JSON object.")
def interactive(job: str | None, dry_run: bool, script: bool, as_json: bool, **options: Any) -> int:
    """Start a shell on compute nodes that has what a job of that profile has.

    The same queue, nodes, GPUs and walltime are requested as a job would request them, by salloc (Slurm), `qsub -I`
    (PBS), qrsh (Grid Engine) or `pjsub --interact` (PJM); on the profile `local` it is a shell here. A profile may name
    the queue for shells and its limits (`interactive:`). Before the prompt the job's own checks are made: modules
    loaded, files sourced, Python activated, nodes and GPUs counted, versions compared. What fails ends the session with
    one line.

    In the shell, `launch COMMAND...` starts COMMAND on all ranks with the profile's launcher, `launch` alone runs the
    work of JOB (a job file, or the name of one; without it a line from each rank), and `python` is the job's Python.
    The first line says what the shell is. `exit` gives the nodes back.

    \b
    Examples:
      hpcjob interactive -p lab -n 2 -t 1h       two nodes for an hour
      hpcjob interactive -p wisteria -A gg53     interactive-a: a node, 10 minutes
      hpcjob interactive jobs/2.7B/dp.yml -p abci3 -A gxx -t 30m
      hpcjob interactive -p tsubame -q gpu_1 -A tga-x --print
    """
    from hpcjob.errors import InputError
    from hpcjob.interactive.session import adapt, prepare

    if (script or as_json) and not dry_run:
        raise click.UsageError("--script and --json go with --dry-run")
    plans = plans_from_options(job=job or _JOB, **options, adapt=adapt)
    if len(plans) > 1:
        raise InputError("sweep: a shell has none", hint="omit it: --set sweep=null")
    session = prepare(plans[0])
    for note in session.notes:
        tell(f"note: {note}")
    if dry_run:
        if as_json:
            print(json.dumps({"command": session.command, "script": session.script}, ensure_ascii=False))
        else:
            print(f"{session.script}\n# started by: {session.line}" if script else session.line)
        return 0
    session.check()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(
            "hpcjob interactive needs a terminal", hint="start it from one, or submit a job: hpcjob submit"
        )
    session.write()
    tell(session.line)
    if plans[0].profile.scheduler.type in ("pbs", "pjm"):
        tell(f"if a prompt comes without a line of hpcjob: exec {session.folder}/script.sh")
    return session.run()
