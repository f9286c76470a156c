"""A submission that is not in half of a list is not absent: it may stand in the other half, and would be made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.errors import SchedulerError
from hpcjob.schedulers.base import Submission
from hpcjob.schedulers.command_scheduler import CommandScheduler
from hpcjob.schedulers.gridengine import GridEngineScheduler
from hpcjob.schedulers.pbs import PbsScheduler
from hpcjob.schedulers.pjm import PjmScheduler
from hpcjob.schedulers.slurm import SlurmScheduler
from tests.hpcjob.jobs import fake_command, plan_for, with_path

WHOLE = {
    "squeue": ["JOBID|COMMENT|COMMAND", "4|(null)|/x/script.sh"],
    "pjstat": ["H,JOB_ID,STD", ",6,/work/other/6_sched.out"],
    "qstat": ["Job Id: 6.pbs1", "    Job_Name = x", "    Output_Path = /work/other/sched.out"],
}
GRID_ENGINE = ["====", "job_number:                 1", "script_file:                /x/script.sh"]


@pytest.mark.parametrize("scheduler", [SlurmScheduler(), PjmScheduler(), PbsScheduler(), GridEngineScheduler()])
def test_absent_from_half_of_a_list_is_not_absent(
    scheduler: CommandScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same list is an answer when it is whole, and none when its last line is cut."""
    submission = Submission(tmp_path / "j" / "script.sh", tmp_path / "j", tmp_path, "hpcjob:1", plan_for("local"))
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    fake_command(tmp_path / "bin", "qselect", "echo 6.pbs1")
    lists = {**WHOLE, "qstat": GRID_ENGINE} if scheduler.type == "gridengine" else WHOLE
    for name, lines in lists.items():
        (tmp_path / f"{name}.out").write_text("\n".join([*lines, "5,6,ab"]))
        fake_command(tmp_path / "bin", name, f"cat '{tmp_path}/{name}.out'")
    with pytest.raises(SchedulerError, match="its last line was cut"):
        scheduler.lookup(submission)
    for name, lines in lists.items():
        (tmp_path / f"{name}.out").write_text("\n".join([*lines, ""]))
    assert scheduler.lookup(submission) is None
