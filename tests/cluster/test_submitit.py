"""submitit on a real Slurm and a real Grid Engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_gridengine import GridEngineUser, cell
from tests.cluster.test_gridengine import user as gridengine_user
from tests.cluster.testbed import Testbed
from tests.cluster.testbed.bed import REPOSITORY
from tests.cluster.testbed.gridengine import GROUPS
from tests.cluster.testbed.processes import PATIENCE_S, wait_until
from tests.cluster.user import PROFILE, User
from tests.hpcjob.plugins.conftest import site_packages

pytestmark = pytest.mark.cluster

__all__ = ["cell", "gridengine_user", "site_packages"]  # fixtures

ACTS = ("tasks", "checkpointed", "results", "exceptions", "array", "cancelled", "cancelled_before", "timed_out")
WITH_PROFILE: dict[str, Any] = {"gridengine_profile": "cell", "gridengine_account": GROUPS[0]}


@pytest.fixture(scope="session")
def packages(bed: Testbed, site_packages: Path) -> Path:
    """The distributions where all hosts see them."""
    return shutil.copytree(site_packages, bed.folder / "site-packages")


def words(user: User, packages: Path, cluster: str, parameters: dict[str, Any], *acts: str) -> list[str]:
    """Return the command that runs acts."""
    user.environment["PYTHONPATH"] = f"{packages}:{REPOSITORY}"
    start = [sys.executable, "-m", "tests.hpcjob.plugins.acts", cluster, str(user.folder / "logs")]
    return [*start, json.dumps(parameters), *acts]


def run(user: User, packages: Path, cluster: str, parameters: dict[str, Any], *acts: str) -> None:
    """Run acts on the login host; each says that it was as it should be."""
    done = user.run(*words(user, packages, cluster, parameters, *acts), check=False, timeout_s=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines() if "as it should be" in line] == list(acts)


def test_slurm(user: User, packages: Path) -> None:
    """Everything at once, by profile: ``scontrol requeue`` starts a job anew under its id."""
    run(user, packages, "hpcjob", {"hpcjob_profile": PROFILE}, *ACTS)


def test_gridengine(gridengine_user: GridEngineUser, packages: Path) -> None:
    """By a profile with whole nodes, for a group: two nodes' tasks."""
    run(gridengine_user, packages, "gridengine", WITH_PROFILE, "tasks")


def test_gridengine_without_a_profile(gridengine_user: GridEngineUser, packages: Path) -> None:
    """One slot each: a job that exits with 99 is started anew under its id."""
    acts = [act for act in ACTS if act != "tasks"]
    run(gridengine_user, packages, "gridengine", {}, *acts)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_warned_before_the_walltime(user: User, gridengine_user: GridEngineUser, packages: Path) -> None:
    """After 45 s of a minute, twice; minutes, so Slurm and Grid Engine one after the other."""
    run(user, packages, "hpcjob", {"hpcjob_profile": PROFILE}, "warned")
    run(gridengine_user, packages, "gridengine", {}, "warned")


@pytest.mark.full
def test_a_node_is_lost(user: User, bed: Testbed, packages: Path) -> None:
    """Slurm starts the job anew on the other node."""
    run(user, packages, "hpcjob", {"hpcjob_profile": PROFILE}, "node_lost")
    wait_until(bed.slurm.idle, PATIENCE_S, "the node does not come back")


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("somebody", "cluster", "parameters", "master"),
    [
        ("user", "hpcjob", {"hpcjob_profile": PROFILE}, "slurmctld"),
        ("gridengine_user", "gridengine", {}, "sge_qmaster"),
    ],
)
def test_a_master_that_hangs_and_comes_back(
    request: pytest.FixtureRequest,
    packages: Path,
    bed: Testbed,
    somebody: str,
    cluster: str,
    parameters: dict[str, Any],
    master: str,
) -> None:
    """Neither an answer that does not come nor one that fails ends a job; its own end is seen then."""
    user: User = request.getfixturevalue(somebody)
    output = user.folder / "steady.out"

    def times_asked() -> int:
        return output.read_text().count("asked")

    running = user.start(*words(user, packages, cluster, parameters, "steady"), output=output)
    wait_until(lambda: times_asked() > 0, 120, "it does not run")
    (pid,) = [pid for pid, name in bed.login.processes().items() if name.split()[0].endswith(master)]
    os.kill(pid, signal.SIGSTOP)
    try:
        before = times_asked()
        wait_until(lambda: times_asked() > before + 1, 200, "nobody asks")  # the first answer may be from before
        (user.folder / "go-on").touch()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert running.wait(200) == 0, output.read_text()
