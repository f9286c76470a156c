"""``hpcjob wait``: until jobs have ended."""

from __future__ import annotations

import sys

import click

from hpcjob.cli.choosing import complete_recorded
from neoxlite.common.printable import printable, tell


@click.command()
@click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=complete_recorded)
@click.option("--timeout", metavar="TIME", help="Give up after this long: 90s, 10m, 1:00:00; the exit code is then 75.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each job as it ends.")
def wait(jobs: tuple[str, ...], timeout: str | None, as_json: bool) -> int:
    """Wait until jobs have ended (default: all that wait or run); print each as it ends.

    JOB is as in `hpcjob status`. What a job waits for is printed on stderr, once and when it changes. One submitted by
    hand that surely never starts (it comes after a job that failed) is not waited for; the exit code is then 75.

    The exit code is the job's own (of several the largest): 85 saved for the walltime, 86 stopped on request, 87 a
    check before the launch failed; 1 where a job ended without a code of its own.

    \b
    Examples:
      hpcjob wait                            until nothing waits or runs
      hpcjob wait latest && hpcjob submit next.yml
      hpcjob wait 12345 12346 --timeout 2h
    """
    from hpcjob import exitcodes
    from hpcjob.cli.choosing import chosen, load_index
    from hpcjob.errors import HpcjobError
    from hpcjob.tracking.waits import Waits
    from hpcjob.tracking.watch import no_use, wait_for
    from hpcjob.units import parse_walltime_s
    from neoxlite.common import streams

    timeout_s = None if timeout is None else parse_walltime_s(timeout, "--timeout")
    streams.outlive()
    index = load_index()
    records = chosen(jobs, index) if jobs else [record for record in index.records if not index.ended(record)]
    code = 0
    left = list(records)
    waits = Waits(tell)
    for record, status in wait_for(records, index, timeout_s=timeout_s, waits=waits):
        left.remove(record)
        code = max(code, status.job_code)
        if as_json:
            import json

            from hpcjob.cli.jobs import as_dict

            print(json.dumps(as_dict(record, status), ensure_ascii=False), flush=True)
        else:
            told = "" if status.exit_code is None else f"  exit code {status.exit_code}"
            print(f"{record.id}  {printable(record.name)}  {status.state}{told}", flush=True)
    if waits.hopeless.issuperset(left) and left:
        raise no_use(left)
    if left:
        names = ", ".join(f"{record.id} ({printable(record.name)})" for record in left)
        hint = "hpcjob status shows where they are"
        asked = f"{timeout} s" if (timeout or "").isdecimal() else timeout
        raise HpcjobError(f"not ended after {asked}: {names}", hint=hint, exit_code=exitcodes.NOT_ENDED)
    if not records:
        print("no jobs wait or run", file=sys.stderr)
    return code
