"""Jobs that need more memory than they asked for, on a real Slurm that limits it by cgroups."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster.testbed import Testbed, cgroups
from tests.cluster.testbed.processes import PATIENCE_S, wait_until
from tests.cluster.user import BIN, User

pytestmark = [pytest.mark.cluster, pytest.mark.full]

HUNGRY = {"command": ["python", "-c", "x = bytearray(400 * 1024 * 1024)"], "memory": "100M"}
KILLED = 137
HOST_MEMORY = 67  # of `explain`
ADVICE = "Ask for more memory"


@pytest.fixture(scope="module")
def limited_user(services: None) -> Iterator[User]:
    """A user of a cluster of one node; CI has no need of cgroups, so it is skipped there too."""
    if missing := cgroups.missing():
        pytest.skip(f"Slurm cannot limit memory here: there is no {', no '.join(missing)}")
    with Testbed(nodes=1, gpus=0, limits_memory=True) as bed:
        user = User(bed, bed.work / "user")
        user.write_profile()
        yield user


def test_out_of_memory_is_told_with_what_to_do(limited_user: User) -> None:
    """Slurm says OUT_OF_MEMORY of the job; so do status and wait, and explain and tail say why and what helps."""
    user = limited_user
    job = user.submit(user.write_job("hungry", kind="cpu", **HUNGRY))
    assert user.wait(job) == KILLED
    status = user.status(job)
    assert (status["state"], status["exit_code"], status["reason"]) == ("OUT_OF_MEMORY", KILLED, None)
    user.wait_for_accounting(job, "OUT_OF_MEMORY")
    check_advice(user, job)


@pytest.mark.parametrize("launcher", ["srun", "mpirun", "torchrun"])
def test_a_rank_out_of_memory_is_explained(limited_user: User, launcher: str) -> None:
    """Where srun starts the ranks Slurm calls the job FAILED and its step OUT_OF_MEMORY: explain tells which it was."""
    user = limited_user
    job = user.submit(user.write_job(launcher, procs_per_node=2, **HUNGRY), "--launcher", launcher)
    assert user.wait(job) == KILLED

    def accounted() -> list[str]:
        return user.run("sacct", "-n", "-P", "-j", job, "--format=State").stdout.split()

    def agreed() -> bool:
        return "OUT_OF_MEMORY" in accounted() and user.status(job)["state"] == accounted()[0]

    wait_until(agreed, PATIENCE_S, "the accounting lags, or says otherwise")
    check_advice(user, job)


def test_a_job_within_its_memory_completes(limited_user: User) -> None:
    """What asked for enough is left alone."""
    user = limited_user
    job = user.submit(user.write_job("enough", kind="cpu", command=HUNGRY["command"], memory="800M"))
    assert user.wait(job) == 0
    assert user.status(job)["state"] == "COMPLETED"


def check_advice(user: User, job: str) -> None:
    """Both commands name host memory as the cause, and what to change."""
    explained = user.run(BIN / "hpcjob", "explain", job, check=False)
    assert explained.returncode == HOST_MEMORY, explained.stdout
    # Slurm's daemon and srun both tell it, in either order.
    assert re.search("used more host memory than|memory was (?:used up|exhausted)", explained.stdout.splitlines()[0])
    assert ADVICE in explained.stdout
    told = user.hpcjob("tail", job)
    assert "! memory" in told
    assert ADVICE in told
