"""``hpcjob hold`` and ``hpcjob release``: keep waiting jobs from starting, and let them start again."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hpcjob.cli.choosing import complete_recorded


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_recorded)
def hold(jobs: tuple[str, ...]) -> int:
    """Keep jobs that wait from starting, until they are released.

    A job that runs goes on. A local job cannot be held. Several jobs of one name are told apart by id.

    \b
    Examples:
      hpcjob hold latest
      hpcjob release latest
    """
    return _act("hold", jobs)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_recorded)
def release(jobs: tuple[str, ...]) -> int:
    """Let held jobs start again.

    \b
    Examples:
      hpcjob release latest
    """
    return _act("release", jobs)


def _act(order: str, names: Sequence[str]) -> int:
    from hpcjob.cli.choosing import chosen_for_order, load_index
    from hpcjob.cli.jobs import printable
    from hpcjob.tracking.watch import hold as hold_job
    from neoxlite.common import streams

    streams.outlive()
    index = load_index()
    for record in chosen_for_order(names, index):
        told = hold_job(record, index, release=order == "release")
        print(f"{record.id}  {printable(record.name)}  {told}", flush=True)
    return 0
