"""``hpcjob forget``: leave jobs out of the list."""

from __future__ import annotations

import click

from hpcjob.cli.choosing import complete_recorded
from neoxlite.common.printable import printable


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_recorded)
@click.option(
    "--force", is_flag=True, help="Also forget pending and running jobs; they continue, but are no longer shown."
)
def forget(jobs: tuple[str, ...], force: bool) -> int:
    """Leave jobs out of list, status, wait and completion from now on.

    For jobs whose state stays UNKNOWN, such as those of a cluster that is gone, and for those that you do not want to
    see any more. JOB is as in `hpcjob status`. Nothing is ended and no file is removed: the job's folder stays, and
    `hpcjob attach ID DIR` puts it into the list again. A job that waits or runs is refused: cancel it, or say --force.

    \b
    Examples:
      hpcjob forget 12345
      hpcjob forget $(hpcjob list --all --state unknown --json | jq -r .id)
    """
    from hpcjob.cli.choosing import chosen, load_index
    from hpcjob.errors import HpcjobError, InputError
    from hpcjob.states import State
    from hpcjob.tracking.index import append
    from hpcjob.tracking.watch import refresh
    from neoxlite.common import streams

    streams.outlive()
    index = load_index()
    records = chosen(jobs, index)
    for record in records:
        if record.element_of is not None:
            raise InputError(
                f"{record.id}: an element of array {record.element_of}, which stands in the list as one job",
                hint=f"forget the array: hpcjob forget {record.element_of}",
            )
    statuses = {} if force else refresh(records, index)
    for record, status in statuses.items():
        if not status.state.ended and status.state is not State.UNKNOWN:
            raise InputError(
                f"{record.id} ({printable(record.name)}) is {status.state}",
                hint=f"hpcjob cancel {record.id} ends it; --force forgets it and lets it continue",
            )
    for record in records:
        try:
            append(record.forget())
        except OSError as error:
            raise HpcjobError(
                f"{error.filename}: {error.strerror}; {record.id} is still in the list",
                hint="fix that file, and try again",
            ) from None
        print(f"{record.id}  {printable(record.name)}  forgotten; its files stay in {printable(record.directory)}")
    return 0
