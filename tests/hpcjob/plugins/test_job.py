"""A function's job without a scheduler: found again, its files, and what its environment says."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from submitit.core.utils import JobPaths

from hpcjob.errors import UnknownJobError
from hpcjob.plugins.environment import HpcjobJobEnvironment
from hpcjob.plugins.job import HpcjobJob, take_pickle
from hpcjob.plugins.records import RECORD
from hpcjob.plugins.task import set_variables
from hpcjob.tracking.records import Record


def record(folder: Path, job_id: str, *, array: str | None = None, scheduler: str = "pbs") -> Record:
    """Return the record of a submission whose job directory is below ``folder``, and write it there."""
    directory = folder / "outputs" / "submitit" / "20261130T000000Z-abcdef"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "script.sh").write_text("#!/bin/bash\n")
    made = Record(
        profile="pbs",
        scheduler=scheduler,
        server="",
        id=job_id,
        submitted="2026-11-30T00:00:00.000000+00:00",
        name="submitit",
        directory=str(directory),
        array=array,
    )
    (directory / RECORD).write_bytes(msgspec.json.encode(made))
    return made


def waiting(folder: Path, name: str = "x_0.pkl") -> Path:
    """Write a pickle that waits for its job's id."""
    path = folder / name
    path.write_bytes(b"pickle")
    return path


def test_found_again_by_folder_and_id(tmp_path: Path) -> None:
    """Single job, and element of an array whose server's number is another than ours."""
    made = record(tmp_path, "7.pbs1")
    HpcjobJob(tmp_path, "7.pbs1", record=made).take_place(waiting(tmp_path), 0)
    assert (tmp_path / "7.pbs1_submitted.pkl").read_bytes() == b"pickle"
    again = HpcjobJob(tmp_path, "7.pbs1", tasks=(0, 1))
    assert (again.record, again.ref.jobdir) == (made, Path(made.directory))
    assert [again.task(rank).paths.result_pickle.name for rank in (0, 1)] == [
        "7.pbs1_0_result.pkl",
        "7.pbs1_1_result.pkl",
    ]
    array = record(tmp_path / "more", "8", array="0-3", scheduler="gridengine")
    HpcjobJob(tmp_path / "more", "8_2", record=array.element(2)).take_place(waiting(tmp_path), 0)
    element = HpcjobJob(tmp_path / "more", "8_2")
    assert (element.ref.task, element.ref.jobdir) == (3, Path(array.directory) / "2")
    assert element.paths.submission_file == tmp_path / "more" / "8_submission.sh"


@pytest.mark.parametrize("job_id", ["9", "8_2", "8_x", "_", "8.pbs1_7"])
def test_no_such_job(tmp_path: Path, job_id: str) -> None:
    """Said at once, with what to do."""
    made = record(tmp_path, "8.pbs1")
    HpcjobJob(tmp_path, "8.pbs1", record=made).take_place(waiting(tmp_path), 0)
    with pytest.raises(UnknownJobError, match=f"no record of job {job_id}\ngive the folder that its executor"):
        HpcjobJob(tmp_path, job_id)


def test_an_id_that_came_round_again(tmp_path: Path) -> None:
    """The result of an older job of this id is not this one's; one that is there already is."""
    made = record(tmp_path, "7")
    old, new, next_ = (tmp_path / name for name in ("7_0_result.pkl", "7_1_result.pkl", "7_next.json"))
    for path, written in ((old, 1000), (new, 3000), (next_, 1000)):
        path.write_bytes(b"")
        os.utime(path, (written, written))
    HpcjobJob(tmp_path, "7", (0, 1), record=made).take_place(waiting(tmp_path), 2000)
    assert (old.exists(), new.exists(), next_.exists()) == (False, True, False)


def test_either_side_gives_the_pickle_its_name(tmp_path: Path) -> None:
    """The job may start before its submission returns; who comes second finds it done, and a saved one is kept."""
    paths = JobPaths(tmp_path, job_id="7")
    pickle = waiting(tmp_path)
    take_pickle(pickle, paths)
    paths.submitted_pickle.write_bytes(b"saved by a checkpoint")
    take_pickle(pickle, paths)
    assert paths.submitted_pickle.read_bytes() == b"saved by a checkpoint"


@pytest.mark.parametrize(
    ("job_id", "variables", "expected"),
    [
        ("7.pbs1", {}, ("7.pbs1", None, 1, 1, 0, 0, 0)),
        ("7.pbs_server", {}, ("7.pbs_server", None, 1, 1, 0, 0, 0)),
        ("7.pbs1_12", {}, ("7.pbs1_12", "12", 1, 1, 0, 0, 0)),
        ("7", {"WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "1"}, ("7", None, 8, 2, 1, 5, 1)),
    ],
)
def test_environment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job_id: str,
    variables: dict[str, str],
    expected: tuple[object, ...],
) -> None:
    """Ids, tasks, nodes and ranks; of a job inside a job, its own. Hosts are those of the job's hostfile."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name in HpcjobJobEnvironment._env.values():
        monkeypatch.setenv(name, "of another job")
    hosts = ["node1", "node2"] if variables else ["node1"]
    (tmp_path / "hostfile").write_text("".join(f"{host} slots=4\n" for host in hosts))
    for name, value in {"HPCJOB_JOBDIR": str(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value)
    set_variables(job_id)
    env = HpcjobJobEnvironment()
    ranks = (env.num_tasks, env.num_nodes, env.node, env.global_rank, env.local_rank)
    assert (env.job_id, env.array_task_id or None, *ranks) == expected
    assert env.hostnames == hosts
    assert env.name() == "hpcjob"
