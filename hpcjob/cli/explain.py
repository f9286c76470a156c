"""``hpcjob explain``: why a job ended, in one cause, its evidence and one fix."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hpcjob.cli.choosing import complete_log


@click.command(short_help="Say why a job ended: one cause, one fix.")
@click.argument("job", nargs=-1, metavar="[JOB|FILE|DIR|GLOB|-]...", shell_complete=complete_log)
@click.option("--profile", metavar="NAME|FILE", help="Compare with this profile (default: the job's own).")
@click.option(
    "--rules",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Try the rules of this file before all others; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as one JSON object.")
def explain(job: tuple[str, ...], profile: str | None, rules: tuple[Path, ...], as_json: bool) -> int:
    """Say why a job ended, from its logs or any others.

    JOB is an id, a name, or 'latest' (the default). A path that exists is read as a file or directory, '*' and '?'
    name several, '-' is standard input; files may be compressed (gzip, bzip2, xz, Zstandard). Dumps of PyTorch's
    flight recorder beside the logs are compared. Processes that only complain of others are counted, not blamed.
    Rules of your own are also read from log_rules/*.yml here, in ~/.config/hpcjob and in HPCJOB_PATH.

    \b
    Examples:
      hpcjob explain                     the newest job
      hpcjob explain 12345               one job
      hpcjob explain slurm-12345.out     any log
      hpcjob explain 'logs/*.log.gz'     all ranks of an old one
      hpcjob explain comm_traces/        PyTorch's flight recorder alone
      hpcjob explain 12345 --json | jq -r '.exclude | join(",")'

    \b
    The exit code is the kind of cause:
      0 nothing wrong found                    72 versions, builds
      64 hardware                              73 configuration
      65 walltime or another limit             74 data or tokenizer
      66 stopped, preempted, a node failed     75 the training diverged
      67 host memory, /dev/shm                 76 error of the program
      68 GPU memory                            77 time-out, nothing shows why
      69 file system                           78 runs, but not as it should
      70 network                               79 failed, no rule knows why
      71 launch
    """
    from hpcjob.logs.explain.command import explained
    from hpcjob.logs.explain.words import lines_of
    from hpcjob.logs.output import open_output

    verdict = explained(job, profile=profile, rules=rules)
    if verdict is None:
        return 0
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    output = open_output(sys.stdout, json=as_json)
    if as_json:
        output.event(verdict)
    else:
        for role, text in lines_of(verdict):
            output.text(text, role)
    output.flush()
    return verdict.code
