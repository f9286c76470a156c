"""``hpcjob list``: recorded jobs, newest first."""

from __future__ import annotations

import sys

import click

from hpcjob.states import State


@click.command("list")
@click.option("-n", "--lines", "count", type=click.IntRange(min=1), default=20, metavar="N", help="How many (20).")
@click.option("--all", "everything", is_flag=True, help="Show all of them.")
@click.option(
    "--state",
    "wanted",
    multiple=True,
    type=click.Choice([state.value for state in State], case_sensitive=False),
    metavar="STATE",
    help="Only jobs in this state, as `hpcjob status --help` names them; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_jobs(count: int, everything: bool, wanted: tuple[str, ...], as_json: bool) -> None:
    """List jobs, newest first: all that you submitted or attached, from any folder, to any cluster.

    \b
    Examples:
      hpcjob list                                  the newest 20
      hpcjob list --all --state failed --state timeout
      hpcjob list --json | jq -r .jobdir           where their files are
    """
    from hpcjob.cli.choosing import load_index
    from hpcjob.cli.jobs import print_jobs

    index = load_index()
    if not index.records:
        if not as_json:
            print("no jobs are recorded; hpcjob submit, or hpcjob attach ID", file=sys.stderr)
        return
    from hpcjob.tracking.watch import refresh

    records = index.records if everything or wanted else index.records[:count]
    statuses = refresh(records, index)
    shown = [record for record in records if not wanted or statuses[record].state.value in wanted]
    shown = shown if everything else shown[:count]
    print_jobs(((record, statuses[record]) for record in shown), as_json=as_json)
    if not shown and not as_json:
        print(f"no job is {' or '.join(wanted)}", file=sys.stderr)
    hidden = len(index.records) - len(shown)
    if hidden and not everything and not wanted and not as_json:
        print(f"{hidden} older; --all shows them", file=sys.stderr)
