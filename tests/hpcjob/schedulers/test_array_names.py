"""Elements of arrays under the schedulers' own numbers: asked for, told apart and ended as these call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.errors import InputError
from hpcjob.schedulers.base import JobRef
from hpcjob.schedulers.registry import scheduler_of
from hpcjob.states import State
from hpcjob.tracking.status import ask
from tests.hpcjob.jobs import calls, fake_command, with_path

HERE = Path("/work/array")


def elements(scheduler: str, spec: str, array: str = "5") -> dict[str, str]:
    """Return our id -> the scheduler's name of each element."""
    asked = scheduler_of(scheduler)  # type: ignore[arg-type]
    return {one.id: asked.own_id(one) for one in asked.elements(JobRef(array, HERE, spec=spec))}


def test_names() -> None:
    """sbatch(1): ``A_a``; qsub(1B): ``123[a].server``; pjsub: ``123[a]``; Grid Engine counts from 1 where it has to."""
    assert elements("slurm", "0,3,7") == {"5_0": "5_0", "5_3": "5_3", "5_7": "5_7"}
    assert elements("gridengine", "0-2") == {"5_0": "5_1", "5_1": "5_2", "5_2": "5_3"}
    assert elements("gridengine", "3-7:2") == {"5_3": "5_3", "5_5": "5_5", "5_7": "5_7"}
    assert elements("gridengine", "3,4,9") == {"5_3": "5_1", "5_4": "5_2", "5_9": "5_3"}
    assert elements("pbs", "0-4:2", "5.pbs1") == {f"5.pbs1_{n}": f"5[{n}].pbs1" for n in (0, 2, 4)}
    assert elements("pbs", "1,2,9", "5.pbs1") == {
        "5.pbs1_1": "5[0].pbs1",
        "5.pbs1_2": "5[1].pbs1",
        "5.pbs1_9": "5[2].pbs1",
    }
    assert elements("pjm", "2-3") == {"5_2": "5[2]", "5_3": "5[3]"}
    assert elements("pjm", "0-2:2") == {"5_0": "5[0]", "5_2": "5[1]"}


RECORD = """\
==============================================================
jobnumber    5
taskid       {task}
jobname      x
failed       0
exit_status  {code}
"""


def test_another_element_of_that_name_is_not_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grid Engine's task 2 is our element 1; asked about it alone, nothing is said of our element 2."""
    text = "".join(RECORD.format(task=task, code=code) for task, code in ((1, 0), (2, 7), (3, 0)))
    fake_command(tmp_path, "qacct", f"cat <<'END'\n{text}END")
    monkeypatch.setenv("PATH", with_path(tmp_path))
    scheduler = scheduler_of("gridengine")
    array = scheduler.elements(JobRef("5", HERE, spec="0-2"))
    answer = scheduler.history([array[1]])
    assert {name: (told.state, told.exit_code) for name, told in answer.reports.items()} == {"5_1": (State.FAILED, 7)}
    assert calls(tmp_path, "qacct") == ["-j 5"]
    answer = scheduler.history(array)
    assert {name: told.exit_code for name, told in answer.reports.items()} == {"5_0": 0, "5_1": 7, "5_2": 0}


def test_one_row_for_the_elements_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """squeue has one row for all that wait (``5_[2-3%1]``), and one for each that runs."""
    rows = "JOBID|STATE|REASON|NAME\n5_[2-3%1]|PENDING|JobArrayTaskLimit|x\n5_1|RUNNING|None|x\n"
    fake_command(tmp_path, "squeue", f"cat <<'END'\n{rows}END")
    fake_command(tmp_path, "sacct", "echo 'JobID|State|ExitCode|JobName'; echo '5_0|COMPLETED|0:0|x'")
    monkeypatch.setenv("PATH", with_path(tmp_path))
    scheduler = scheduler_of("slurm")
    (tmp_path / "5").mkdir()
    array = JobRef("5", tmp_path / "5", spec="0-3")
    states = {name: told.state for name, told in scheduler.queue(scheduler.elements(array)).reports.items()}
    assert states == {"5_1": State.RUNNING, "5_2": State.PENDING, "5_3": State.PENDING}
    status = ask(scheduler, [array])["5"]
    assert (status.state, status.reason) == (State.RUNNING, "1 RUNNING, 2 PENDING, 1 COMPLETED")
    assert calls(tmp_path, "sacct")[0].endswith("--jobs=5")
    assert len(calls(tmp_path, "squeue")) == 2, "one query each time, whatever the number of elements"


def test_pbs_asks_for_the_array_and_ends_an_element(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``qstat -t`` of the array tells of all its elements, in one call; ``qdel 'ID[1]'`` ends one."""
    record = "Job Id: 5[{n}].pbs1\n    Job_Name = x\n    job_state = {state}\n    Submit_Host = h\n\n"
    told = record.format(n="", state="B") + record.format(n=0, state="R") + record.format(n=1, state="Q")
    fake_command(tmp_path, "qstat", f"cat <<'END'\n{told}END")
    fake_command(tmp_path, "qdel", "")
    monkeypatch.setenv("PATH", with_path(tmp_path))
    scheduler = scheduler_of("pbs")
    array = JobRef("5.pbs1", HERE, spec="0-1")
    answer = scheduler.queue(scheduler.elements(array))
    states = {name: told.state for name, told in answer.reports.items()}
    assert states == {"5.pbs1_0": State.RUNNING, "5.pbs1_1": State.PENDING}
    assert calls(tmp_path, "qstat") == ["-t -f 5[].pbs1"]
    scheduler.cancel([scheduler.elements(array)[1]])
    scheduler.cancel([array])
    assert calls(tmp_path, "qdel") == ["5[1].pbs1", "5[].pbs1"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [("", "not a range"), ("a", "not a range"), ("3-1", "empty"), ("0-9:0", "step is 0"), ("0-999999999", "largest"),
     ("0-99999", "at most"), ("1--2", "not a range"), ("٣", "not a range"), ("1;rm", "not a range"),
     ("-1", "not a range")],
)  # fmt: skip
def test_hostile_specs(spec: str, words: str) -> None:
    """A text that names no elements, or billions of them, is refused in one line."""
    from hpcjob.arrays import parse_spec

    with pytest.raises(InputError, match=words):
        parse_spec(spec)
