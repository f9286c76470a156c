"""Job files by path and name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.loading.jobs import find_job, job_names
from tests.hpcjob.loading.files import own_profile, plan_of, refusal, settings, write


def test_without_a_job_file_the_2_7b_run_is_taken(own_place: Path) -> None:
    """On a cluster it is the data-parallel 2.7B run for any number of nodes, and the plan says so."""
    plan = plan_of(profile="abci3", nodes="2", account="gxx")
    assert (plan.nodes, plan.world_size) == (2, 16)
    assert plan.notes == ("no job file given: hpcjob:jobs/2.7B/dp.yml",)
    assert plan.job_source is not None
    assert plan.job_source.label == "hpcjob:jobs/2.7B/dp.yml"


def test_without_a_job_file_this_machine_runs_the_quickstart(own_place: Path) -> None:
    """On `local`, and on a profile that extends it."""
    assert plan_of(profile="local").name == "quickstart"
    own_profile(own_place, "workstation", "extends: local\ntitle: mine\nnode: {gpus: 1}\n")
    plan = plan_of(profile="workstation", settings=("procs_per_node=1",))
    assert plan.name == "quickstart"
    assert plan.profile.node.gpus == 1


@pytest.mark.parametrize("name", ["jobs/2.7B/dp.yml", "2.7B/dp.yml", "2.7B/dp", "jobs/2.7B/dp"])
def test_shipped_jobs_are_found_from_anywhere(own_place: Path, name: str) -> None:
    """With and without the folder and the suffix."""
    assert find_job(name).parts[-2:] == ("2.7B", "dp.yml")


def test_a_job_file_here_comes_before_a_shipped_one(own_place: Path) -> None:
    """`jobs/quickstart.yml` of the current folder is taken; a path is taken as it is."""
    write(own_place / "jobs/quickstart.yml", "name: mine\ncommand: [a]\n")
    assert plan_of(job="jobs/quickstart.yml", profile="local").name == "mine"
    assert plan_of(job="quickstart", profile="local").name == "mine"
    assert plan_of(job=str(own_place / "jobs/quickstart.yml"), profile="local").name == "mine"


def test_japanese_names_and_spaces_in_paths(own_place: Path) -> None:
    """A job file 実験 その1.yml is read, and gives the job its name."""
    write(own_place / "実験/実験 その1.yml", "command: [echo, こんにちは]\nenv: {鍵: x}\n")
    assert refusal(job="実験/実験 その1.yml", profile="local").startswith(
        "実験/実験 その1.yml:2: env: '鍵' is not a name of a variable\n"
    )
    write(own_place / "実験/実験 その1.yml", "command: [echo, こんにちは]\n")
    plan = plan_of(job="実験/実験 その1.yml", profile="local")
    assert plan.name == "実験 その1"
    assert plan.steps[0].argv == ("echo", "こんにちは")


def test_job_files_that_are_not_there(own_place: Path) -> None:
    """Near names are offered; a folder is told to be one."""
    assert refusal(job="quikstart", profile="local") == ("quikstart: no such job file\ndid you mean quickstart.yml?")
    (own_place / "runs").mkdir()
    assert refusal(job="runs", profile="local").startswith("runs: a folder, not a job file\n")
    assert refusal(job="/no/such/file.yml", profile="local").startswith("/no/such/file.yml: no such job file\n")
    assert "2.7B/dp.yml" in job_names()
    assert refusal(job="zzzz", profile="local").endswith(
        f"job files: {', '.join(job_names())}, or the path of one of your own"
    )
    (own_place / "my runs").mkdir()
    (own_place / "my runs/実験.yml").touch()
    assert refusal(job="my runs/実験2.yml", profile="local").endswith("\ndid you mean my runs/実験.yml?")


def test_a_folder_that_is_closed(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job file, and the settings, below a folder that may not be entered are told as such."""

    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    def unread(path: Path, limit: int | None = None) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_file", closed)
        patch.setattr("hpcjob.documents.reading.read_regular", unread)
        assert refusal(job="sec/a.yml", profile="lab") == (
            "sec/a.yml: Permission denied\ncheck that the job file can be read"
        )
    path = settings(own_place, "profile: lab\n")
    monkeypatch.setattr(Path, "exists", closed)
    monkeypatch.setattr("hpcjob.documents.reading.read_regular", unread)
    assert refusal(profile="lab") == f"{path}: Permission denied\ncheck that the configuration can be read"
