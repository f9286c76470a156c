"""``hpcjob cancel``: end jobs."""

from __future__ import annotations

import click

from hpcjob.cli.choosing import complete_recorded
from neoxlite.common.printable import tell


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_recorded)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def cancel(jobs: tuple[str, ...], as_json: bool) -> None:
    """End jobs, and print what happened.

    A training run is asked to save first: the script gets SIGTERM, and is killed when it takes too long. Of a local job
    all processes have ended on return.

    JOB is an id, profile:id, a job directory, 'latest', or a name: of several jobs of that name the one that has not
    ended; where several have not, none is ended, and their ids are printed.

    \b
    Examples:
      hpcjob cancel latest
      hpcjob cancel 12345 12346
      hpcjob cancel 12345_7             one element of an array
    """
    from hpcjob.cli.choosing import obeyed
    from hpcjob.cli.jobs import print_told
    from hpcjob.tracking.dependencies import left_behind
    from hpcjob.tracking.watch import cancel as cancel_job
    from neoxlite.common import streams

    streams.outlive()
    for record, told, index in obeyed(jobs, cancel_job):
        print_told(record, told, as_json=as_json)
        if note := left_behind(record, index):
            tell(f"note: {note}")
