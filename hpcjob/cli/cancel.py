"""``hpcjob cancel``: end jobs."""

from __future__ import annotations

import click

from hpcjob.cli.choosing import complete_recorded
from neoxlite.common.printable import tell


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_recorded)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def cancel(jobs: tuple[str, ...], as_json: bool) -> int:
    """End jobs, and tell what happened.

    A training run is asked to save first: the script gets SIGTERM, and is killed when it takes too long. Of a local job
    all processes have ended on return.

    JOB is an id, profile:id, a job directory, 'latest', or a name: of several jobs of that name the one that has not
    ended; where several have not, none is ended, and their ids are told.

    \b
    Examples:
      hpcjob cancel latest
      hpcjob cancel 12345 12346
      hpcjob cancel 12345_7             one element of an array
    """
    import json

    from hpcjob.cli.choosing import chosen_for_order, load_index
    from hpcjob.cli.jobs import printable
    from hpcjob.errors import SchedulerError
    from hpcjob.tracking.dependencies import left_behind
    from hpcjob.tracking.watch import cancel as cancel_job
    from neoxlite.common import streams

    streams.outlive()
    index = load_index()
    failed: SchedulerError | None = None
    for record in chosen_for_order(jobs, index):
        try:
            told = cancel_job(record, index)
        except SchedulerError as error:
            if failed is not None:
                tell(failed.message)
            failed = error
            continue
        if as_json:
            print(json.dumps({"id": record.id, "profile": record.profile, "told": told}, ensure_ascii=False))
        else:
            print(f"{record.id}  {printable(record.name)}  {told}", flush=True)
        if note := left_behind(record, index):
            tell(f"note: {note}")
    if failed is not None:
        raise failed
    return 0
