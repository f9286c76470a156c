"""A submission that is not in half of a list is not absent: it may stand in the other half, and would be made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.errors import SchedulerError
from hpcjob.schedulers.base import Submission
from hpcjob.schedulers.command_scheduler import CommandScheduler
from hpcjob.schedulers.commands import Finished
from hpcjob.schedulers.gridengine import GridEngineScheduler
from hpcjob.schedulers.pbs import PbsScheduler
from hpcjob.schedulers.pjm import PjmScheduler
from hpcjob.schedulers.slurm import SlurmScheduler
from tests.hpcjob.jobs import plan_for

LISTS: list[tuple[CommandScheduler, str]] = [
    (SlurmScheduler(), "JOBID|COMMENT|COMMAND\n4|(null)|/x/script.sh\n"),
    (PbsScheduler(), "Job Id: 6.pbs1\n    Job_Name = x\n    Output_Path = /work/other/sched.out\n"),
    (PjmScheduler(), "H,JOB_ID,STD\n,6,/work/other/6_sched.out\n"),
    (GridEngineScheduler(), "====\njob_number:                 1\nscript_file:                /x/script.sh\n"),
]


@pytest.mark.parametrize(("scheduler", "whole"), LISTS, ids=[scheduler.type for scheduler, _ in LISTS])
def test_absent_from_half_of_a_list_is_not_absent(scheduler: CommandScheduler, whole: str, tmp_path: Path) -> None:
    """The same list is an answer when it is whole, and none when its last line is cut."""
    submission = Submission(tmp_path / "j" / "script.sh", tmp_path / "j", "hpcjob:1", tmp_path, plan_for("local"))
    assert scheduler.find(submission, Finished(("list",), 0, whole, "")) is None
    with pytest.raises(SchedulerError, match="its last line was cut"):
        scheduler.find(submission, Finished(("list",), 0, f"{whole}5,6,ab", ""))
