"""``hpcjob submit``: render, submit, record; follow if asked."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from hpcjob import exitcodes
from hpcjob.cli.options import jobs_options
from neoxlite.common.printable import printable, tell

if TYPE_CHECKING:
    from hpcjob.tracking.records import Record
    from hpcjob.tracking.submission import Prepared


@click.command()
@jobs_options
@click.option("--chain", is_flag=True, help="Start each JOB after the one before it has succeeded.")
@click.option("--follow", "-f", is_flag=True, help="Print the log until the job has ended; exit with the job's code.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the script and the command; nothing is submitted. Exits with 2 where it would be refused.",
)
@click.option(
    "--no-check",
    is_flag=True,
    help="Skip the checks of files and configuration.",
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--json", "as_json", is_flag=True, help="Print each new job as one JSON object.")
def submit(
    jobs: tuple[str, ...],
    chain: bool,
    follow: bool,
    dry_run: bool,
    no_check: bool,
    strict: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Render the script of each JOB for a cluster, submit it from this folder, and keep track of it.

    JOB is a job file, or the name of one in a `jobs` folder; without it the 2.7B data-parallel run, on the profile
    `local` the quickstart.

    A submission has a folder of its own, outputs/NAME/TIME-UID below this one: the script, the job and the profile as
    they were resolved, the git commit and diff, and then the logs. What the scheduler refuses leaves no trace.

    The files that the script needs before its launch are looked for first (source, stage_in, python), and the
    configuration of a training run is read with the job's number of ranks: what would fail after hours in the queue is
    refused here. With several jobs, or a sweep, all are looked at before the first is submitted.

    \b
    Examples:
      hpcjob submit jobs/quickstart.yml -p local --follow
      hpcjob submit jobs/2.7B/dp.yml -p lab --nodes 2
      hpcjob submit my.yml -p lab --set train.set.lr-decay-iters=1000 --dry-run
      hpcjob submit prepare.yml train.yml -p lab --chain   one after the other
      hpcjob submit evaluate.yml -p lab --after latest     after the newest job

    With --follow, Ctrl-C ends the printing, not the job. Output that cannot be written (a full disk) stops no
    submission and does not change the exit code; the new ids are then printed on stderr.
    """
    from hpcjob.cli.submitting import Batch
    from neoxlite.common import streams

    if follow and as_json:
        raise click.UsageError("--follow and --json do not go together; use hpcjob tail -f --json")
    if chain and len(jobs) < 2:
        raise click.UsageError("--chain takes two or more jobs: hpcjob submit FIRST.yml SECOND.yml --chain")
    batch = Batch(jobs or (None,), options, chain=chain, check=not no_check, strict=strict)
    if dry_run:
        taken = [_print_dry(prepared, as_json) for prepared in batch.prepared()]
        return exitcodes.OK if all(taken) else exitcodes.USAGE
    if follow and batch.count > 1:
        raise click.UsageError(f"--follow follows one job, these are {batch.count}; use hpcjob wait")
    streams.outlive()
    records = []
    for record in batch.submit():
        records.append(record)
        print_job(record, as_json)
    if streams.lost():
        tell(f"submitted: {' '.join(record.id for record in records)}")
    return follow_to_end(records[0]) if follow else 0


def _print_dry(prepared: Prepared, as_json: bool) -> bool:
    """Print a submission; return whether it would be made."""
    from hpcjob.errors import InputError
    from hpcjob.tracking.submission import check

    refused = None
    try:
        check(prepared)
    except InputError as error:
        refused = error.message
        tell(f"note: would be refused: {refused}")
    if as_json:
        print(json.dumps({"command": prepared.command, "script": prepared.script}, ensure_ascii=False))
    else:
        print(prepared.script, end="" if prepared.script.endswith("\n") else "\n")
        print(f"\n# to be submitted with: {prepared.command}")
    return refused is None


def print_job(record: Record, as_json: bool) -> None:
    """Print a new job and the lines to type next, or the job as one JSON object."""
    from hpcjob.cli.jobs import describe

    if as_json:
        print(json.dumps(describe(record), ensure_ascii=False))
        return
    print(f"job {record.id}  {printable(record.name)} on {record.profile}")
    print(f"  folder  {printable(record.directory)}")
    if record.array is not None:
        first = record.array.partition("-")[0].partition(",")[0]
        print(f"  array   {record.array}; one element: hpcjob status {record.id}_{first}")
    if record.after:
        print(f"  after   {', '.join(record.after)}")
    print(f"  log     hpcjob tail {record.id} -f")
    print(f"  cancel  hpcjob cancel {record.id}", flush=True)


def follow_to_end(record: Record) -> int:
    """Print the job's log until it has ended and everything is read; return the job's exit code.

    Ctrl-C leaves the job alone and says how to go on; the code is then 130.
    """
    from hpcjob.cli.jobs import note_of
    from hpcjob.logs.follow import follow
    from hpcjob.logs.sources import JobFiles
    from hpcjob.tracking.index import read_index
    from hpcjob.tracking.waits import Waits
    from hpcjob.tracking.watch import job_ended, refresh

    files, waits = JobFiles(record.jobdir, record.id), Waits(tell)
    try:
        for line in follow(files.main, stop=lambda: job_ended(record, waits)):
            print(line.shown, flush=True)
        status = refresh([record], read_index())[record]
    except KeyboardInterrupt:
        print(f"\nhpcjob: job {record.id} continues; to see or end it:", file=sys.stderr)
        print(f"  hpcjob tail {record.id} -f\n  hpcjob cancel {record.id}", file=sys.stderr)
        return 130
    told = "" if status.exit_code is None else f", exit code {status.exit_code}"
    note = note_of(status)
    why = f" ({printable(note)})" if note else ""
    tell(f"job {record.id} {status.state}{told}{why}")
    if status.job_code != exitcodes.OK and not status.is_clean_stop:
        tell(f"why: hpcjob explain {record.id}")
    return status.job_code
