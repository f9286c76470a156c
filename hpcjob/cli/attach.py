"""``hpcjob attach``: track a job that was submitted by hand."""

from __future__ import annotations

from pathlib import Path

import click

from hpcjob.cli.options import complete_profile


@click.command()
@click.argument("job_id", metavar="ID")
@click.argument("log", required=False, type=click.Path(path_type=Path), metavar="[LOG]")
@click.option(
    "--profile", "-p", required=True, metavar="NAME", shell_complete=complete_profile, help="Cluster it runs on."
)
@click.option("--name", "-N", metavar="NAME", help="Name to find it by; default: the scheduler's.")
@click.option("--json", "as_json", is_flag=True, help="Print the job as one JSON object.")
def attach(job_id: str, log: Path | None, profile: str, name: str | None, as_json: bool) -> None:
    """Track job ID, submitted by hand, as if hpcjob had submitted it.

    LOG is its log file or job directory. Without it, the folder that a rendered script makes is looked for below this
    one (outputs/NAME/TIME-ID). A job that is in the list already is refused.

    \b
    Examples:
      hpcjob render -p abci --nodes 2 -o job.sh && qsub -P GROUP job.sh
      hpcjob attach 12345.pbs1 -p abci
      hpcjob attach 4711 slurm-4711.out -p lab --name old-script
    """
    from hpcjob.cli.submit import print_job
    from hpcjob.loading.profiles import load_profile
    from hpcjob.tracking.attaching import attach as attach_job

    cluster, _ = load_profile(profile)
    print_job(attach_job(job_id, cluster, log=log, name=name), as_json)
