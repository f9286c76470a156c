"""``python -m tests.cluster.faulty_run slurm|gridengine SUBMISSIONS POLLS``, at the login host, in an empty folder.

Submits and polls while three of ten of the real scheduler's commands fail, and asserts that nothing false is concluded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hpcjob.tracking.records import Record
from tests.emulators import faults
from tests.hpcjob.jobs import plan_for, with_path
from tests.hpcjob.tracking.faulty import check_submissions, end_all, poll_while_they_end, submit_many

COMMANDS = {
    "slurm": ("sbatch", "squeue", "sacct", "scancel"),
    "gridengine": ("qsub", "qstat", "qacct", "qdel"),
}
DIRECTIVES = {
    "slurm": "#SBATCH --job-name=x --ntasks=1 --time=30\n#SBATCH --output=JOBDIR/%j_sched.out",
    "gridengine": "#$ -N x -cwd -j y -l h_rt=1800\n#$ -o JOBDIR/sched.out",
}


def scripts_of(system: str) -> dict[str, str]:
    """Return id -> what tells the script of each job that the scheduler has; the jobs wait, so that none has gone."""
    if system == "slurm":
        lines = _said("squeue", "-h", "-o", "%i %o").splitlines()
        return dict(line.split(" ", 1) for line in lines)
    ids = [line.split()[0] for line in _said("qstat").splitlines()[2:]]
    return {job_id: _said("qstat", "-j", job_id) for job_id in ids}


def is_over(system: str, record: Record) -> bool:
    """Whether the scheduler, asked without faults, has the job no more, or as one that has ended and is completing."""
    alive = ("squeue", "-h", "-t", "pending,configuring,running,suspended", "-o", "%i")
    ids = _said(*alive) if system == "slurm" else _said("qstat")
    return record.id not in {line.split()[0] for line in ids.splitlines() if line.strip()}


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, env=REAL).stdout


REAL = dict(os.environ)


def main() -> None:
    """Run it."""
    system, submissions, polls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    subprocess.Popen = faults.Impatient  # type: ignore[misc, assignment]
    folder = Path("faults").absolute()
    os.environ["PATH"] = with_path(faults.put_faults(folder, COMMANDS[system], seed=11))
    faults.start(folder)
    came = submit_many(plan_for(system), submissions, DIRECTIVES[system], sleep=lambda _: None)
    faults.stop(folder)
    check_submissions(came, scripts_of(system))
    assert len(came.accepted) > submissions / 2, came
    faults.start(folder)
    poll_while_they_end(came, polls, lambda record: is_over(system, record))
    faults.stop(folder)
    end_all(came, 240)
    print(came)


if __name__ == "__main__":
    main()
