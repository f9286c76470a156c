"""``hpcjob watch``: a live screen of jobs, losses and logs."""

from __future__ import annotations

import sys

import click

from hpcjob.cli.choosing import complete_recorded


@click.command(short_help="Watch jobs on a live screen: states, losses, log.")
@click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=complete_recorded)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=1.0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to query the scheduler.",
)
def watch(jobs: tuple[str, ...], interval_s: float) -> None:
    """Watch jobs on a live screen: their states, the losses of the chosen one, and its log.

    JOB is as in `hpcjob status`; without it all that have not ended are shown, and the last few that have. Needs the
    extra hpcjob[report].

    \b
    Keys: up, down  choose a job       t, Enter  its log alone, and back
          e         explain its end    c         cancel it (asks first)
          a         all jobs           r         ask now          q  quit

    \b
    Examples:
      hpcjob watch
      hpcjob watch 12345 12346 --interval 30   query the scheduler less often
    """
    from hpcjob.errors import InputError

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("watch needs a terminal", hint="elsewhere: hpcjob status, hpcjob tail JOB -f --loss")
    from hpcjob.report.board import check_names
    from hpcjob.report.screen import WatchApp

    check_names(jobs)
    WatchApp(jobs, interval_s=interval_s).run()
