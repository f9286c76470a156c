"""``hpcjob status``: the state of jobs, asked for with one question per cluster."""

from __future__ import annotations

import sys

import click

from hpcjob.cli.choosing import complete_recorded


@click.command()
@click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=complete_recorded)
@click.option("--elements", "-e", is_flag=True, help="Show a line for each element of an array.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def status(jobs: tuple[str, ...], elements: bool, as_json: bool) -> None:
    """Show the state of jobs: those named, or all that have not ended.

    JOB is an id, a name or the beginning of one, profile:id, a job directory, or 'latest'; JOB_7 is the element of an
    array with index 7.

    \b
    States: PENDING RUNNING COMPLETING SUSPENDED; COMPLETED FAILED CANCELLED
    TIMEOUT NODE_FAIL OUT_OF_MEMORY PREEMPTED; UNKNOWN: nobody can say, the note
    says why (if that lasts, hpcjob forget hides the job).
    Exit codes of our scripts: 85 saved for the walltime (TIMEOUT), 86 stopped on
    request (CANCELLED), 87 a check before the launch failed (FAILED).

    \b
    Examples:
      hpcjob status              what waits and runs
      hpcjob status latest
      hpcjob status 12345 --json
      hpcjob status 12345_7      an element of an array
      hpcjob status 12345 -e     each of its elements
    """
    from hpcjob.cli.choosing import chosen, load_index
    from hpcjob.cli.jobs import print_jobs

    index = load_index()
    if jobs:
        records = chosen(jobs, index)
    else:
        records = [record for record in index.records if not index.ended(record)]
    if not records:
        if not as_json:
            print("no jobs wait or run; hpcjob list shows those that have ended", file=sys.stderr)
        return
    from hpcjob.tracking.lookup import elements as elements_of
    from hpcjob.tracking.watch import refresh

    if elements:
        records = [element for record in records for element in elements_of(record)]
    statuses = refresh(records, index)
    print_jobs(((record, statuses[record]) for record in records), as_json=as_json)
