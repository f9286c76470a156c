"""Many queued jobs on a real Slurm and a real Grid Engine: how often the scheduler is asked, and what hpcjob takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cluster.test_arrays import options, somebody
from tests.cluster.test_gridengine import GridEngineUser, cell
from tests.cluster.test_gridengine import user as gridengine_user
from tests.cluster.user import BIN, User

pytestmark = pytest.mark.cluster

__all__ = ["cell", "gridengine_user", "somebody"]

QUERIES = ("squeue", "sacct", "scontrol", "qstat", "qacct")


def count_queries(user: User) -> Path:
    """Put commands before the scheduler's that note each call and how long it took; the file of the notes."""
    bin_ = user.folder / "counted"
    bin_.mkdir()
    calls = user.folder / "calls"
    path = "/usr/bin:/bin"
    for name in QUERIES:
        if real := shutil.which(name, path=path):
            note = f'echo "{name} $before $EPOCHREALTIME" >>{calls}'
            (bin_ / name).write_text(f'#!/bin/bash\nbefore=$EPOCHREALTIME\n{real} "$@"\ncode=$?\n{note}\nexit $code\n')
            (bin_ / name).chmod(0o755)
    user.environment["PATH"] = f"{bin_}:{path}"
    return calls


def timed(user: User, calls: Path, *arguments: str) -> tuple[list[dict[str, object]], list[str], dict[str, float]]:
    """Run hpcjob; the jobs it tells of, the queries it made, and seconds: ``wall``, ``cpu``, ``scheduler``.

    ``cpu`` is the time of hpcjob and of the commands it ran, Slurm's and the notes' included.
    """
    calls.write_text("")
    script = 'TIMEFORMAT="%R %U %S"; time "$@" >out.jsonl'
    said = user.run("bash", "-c", script, "-", BIN / "hpcjob", *arguments, "--json", timeout_s=600).stderr
    wall, *cpu = map(float, said.split()[-3:])
    rows = [line.split() for line in calls.read_text().splitlines()]
    seconds = {"wall": wall, "cpu": sum(cpu), "scheduler": sum(float(end) - float(begin) for _, begin, end in rows)}
    jobs = [json.loads(line) for line in (user.folder / "out.jsonl").read_text().splitlines()]
    return jobs, [name for name, _, _ in rows], seconds


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(20, id="20"),
        pytest.param(1000, id="1000", marks=[pytest.mark.full, pytest.mark.timeout(5400)]),
    ],
)
def test_one_query_for_all_queued_jobs(somebody: User, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """list and status ask the queue once for any number of jobs, and the history not at all."""
    held = ["-h"] if isinstance(somebody, GridEngineUser) else ["--hold"]
    job = somebody.write_job(
        "many", kind="cpu", command=["true", "{params.number}"], extra=held, params={"number": 0},
        sweep={"number": list(range(count))},
    )  # fmt: skip
    somebody.hpcjob("submit", job, *options(somebody), timeout_s=5000)
    calls = count_queries(somebody)
    query = "qstat" if isinstance(somebody, GridEngineUser) else "squeue"
    for arguments in (["list", "--all"], ["status"]):
        jobs, asked, seconds = timed(somebody, calls, *arguments)
        assert len(jobs) == count
        assert {told["state"] for told in jobs} == {"PENDING"}
        assert len({told["id"] for told in jobs}) == count
        assert asked == [query]
        if count >= 1000:
            told = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
            with capsys.disabled():
                print(f"\n{query}: hpcjob {arguments[0]} of {count} queued jobs: {told}")
