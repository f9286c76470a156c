"""``hpcjob hold`` and ``hpcjob release``: keep waiting jobs from starting, and let them start again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from hpcjob.cli.choosing import complete_recorded


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_recorded)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def hold(jobs: tuple[str, ...], as_json: bool) -> None:
    """Keep jobs that wait from starting, until they are released.

    A job that runs continues, and a local job cannot be held. JOB is as in `hpcjob cancel`.

    \b
    Examples:
      hpcjob hold 12345 12346
      hpcjob hold latest                a mistake was seen: look, then release
    """
    _act(jobs, release=False, as_json=as_json)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_recorded)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def release(jobs: tuple[str, ...], as_json: bool) -> None:
    """Release held jobs.

    JOB is as in `hpcjob cancel`.

    \b
    Examples:
      hpcjob release 12345 12346
      hpcjob release latest
    """
    _act(jobs, release=True, as_json=as_json)


def _act(names: Sequence[str], *, release: bool, as_json: bool) -> None:
    from hpcjob.cli.choosing import obeyed
    from hpcjob.cli.jobs import print_told
    from hpcjob.tracking.watch import hold as hold_job
    from neoxlite.common import streams

    streams.outlive()
    for record, told, _ in obeyed(names, partial(hold_job, release=release)):
        print_told(record, told, as_json=as_json)
