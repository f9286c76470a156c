"""Jobs on a real Grid Engine, as hpcjob submits, tells and ends them, behind a site's ways of asking for nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.need import need
from tests.cluster.testbed import Testbed, gridengine
from tests.cluster.testbed.bed import REPOSITORY
from tests.cluster.testbed.gridengine import GROUPS, GridEngine
from tests.cluster.testbed.modules import init_script
from tests.cluster.testbed.processes import PATIENCE_S, wait_until
from tests.cluster.training import Training
from tests.cluster.user import BIN, User
from tests.hpcjob.terminal import type_into

pytestmark = pytest.mark.cluster

SLEEP = ["sleep", "300"]
SLOTS = 2  # ranks of each node
PROFILE = "cell"
_CELLS: dict[Path, GridEngine] = {}  # of each bed: every module that imports the fixture has one of its own


@pytest.fixture(scope="session")
def cell(bed: Testbed) -> GridEngine:
    """Grid Engine on the hosts of the test bed, beside Slurm."""
    need(gridengine.missing(), "Grid Engine")
    if bed.folder not in _CELLS:
        cell = GridEngine(bed.hosts, bed.folder / "gridengine")
        cell.up()
        _CELLS[bed.folder] = cell
    return _CELLS[bed.folder]


class GridEngineUser(User):
    """A user whose profile is that of the cell."""

    def submit(self, job: Path, *options: str, profile: str = PROFILE) -> str:
        """Submit a job, for the group that pays; its id."""
        return super().submit(job, "--account", GROUPS[0], *options, profile=profile)


@pytest.fixture
def user(bed: Testbed, cell: GridEngine, request: pytest.FixtureRequest) -> Iterator[GridEngineUser]:
    """A user with a new folder; their jobs end with the test."""
    user = GridEngineUser(bed, bed.work / "gridengine" / re.sub(r"\W+", "_", request.node.name))
    user.write_profile(
        {
            "extends": "abci2",
            "modules": {"init": init_script(), "load": []},
            "versions": {"cuda": None, "nccl": None, "nccl_from": "torch"},
            "scheduler": {"resource": "rt_F"},
            "launcher": {"default": "mpirun", "mpirun_args": ["--bind-to", "none"]},
            "ssh": {"access": "free", "directive": None, "port": 22},
            "queues": {"rt_F": {"node": {"gpus": 0}}},
            "network_interface": None,
        },
        PROFILE,
    )
    yield user
    bed.login.run("qdel", "-f", "-u", "root", check=False)
    wait_until(lambda: not bed.login.run("qstat").stdout, PATIENCE_S, "jobs are left in the queue")


def test_pending_running_cancelled(user: GridEngineUser) -> None:
    """A job that waits for the nodes of another is PENDING, then RUNNING; cancelled in either, CANCELLED."""
    first = user.submit(user.write_job("first", kind="cpu", command=SLEEP), "--nodes", "2")
    user.wait_for_state(first, "RUNNING")
    second = user.submit(user.write_job("second", kind="cpu", command=SLEEP))
    third = user.submit(user.write_job("third", kind="cpu", command=SLEEP))
    assert user.status(second)["state"] == "PENDING"
    user.hpcjob("cancel", third)
    user.wait_for_state(third, "CANCELLED")
    user.hpcjob("cancel", first)
    user.wait_for_state(first, "CANCELLED")
    user.wait_for_state(second, "RUNNING")
    user.hpcjob("cancel", second)
    assert user.wait(second) != 0
    assert user.status(second)["state"] == "CANCELLED"


def test_completed_and_failed(user: GridEngineUser) -> None:
    """The codes of a success and of a failure are seen by status, wait and submit --follow; the group pays."""
    good = user.submit(user.write_job("good", kind="cpu", command=["true"]))
    bad = user.submit(user.write_job("bad", kind="cpu", command=["sh", "-c", "echo some words; exit 7"]))
    assert user.wait(good) == 0
    assert user.wait(bad) == 7
    assert user.status(good)["state"] == "COMPLETED"
    assert (user.status(bad)["state"], user.status(bad)["exit_code"]) == ("FAILED", 7)
    assert "some words" in user.log(bad)
    account = [line.split() for line in user.run("qacct", "-j", good).stdout.splitlines() if line.startswith("account")]
    assert account == [["account", GROUPS[0]]]
    options = ["--profile", PROFILE, "--account", GROUPS[0], "--follow"]
    followed = user.run(BIN / "hpcjob", "submit", "bad.yml", *options, check=False)
    assert followed.returncode == 7
    assert "some words" in followed.stdout


def test_timeout(user: GridEngineUser) -> None:
    """A job that Grid Engine kills at h_rt leaves no exit record; it is a TIMEOUT."""
    job = user.submit(user.write_job("long", kind="cpu", command=SLEEP, walltime="0:00:03", stop_before_s=0))
    user.wait_for_state(job, "TIMEOUT")
    assert not list(user.jobdir(job).glob("*_exit.json"))


def test_killed_while_accounting_lags(user: GridEngineUser, cell: GridEngine) -> None:
    """Gone from the queue, no exit record, not in qacct yet: UNKNOWN, which is no end; then FAILED with its signal."""
    earlier = user.run("qsub", "-terse", "-b", "y", "-o", "/dev/null", "-j", "y", "true").stdout.strip()
    wait_until(lambda: user.run("qacct", "-j", earlier, check=False).returncode == 0, PATIENCE_S, "no record")
    late = user.folder / "late"
    late.mkdir()
    old = shutil.copy(cell.folder / "cell" / "common" / "accounting", late)
    (late / "qacct").write_text(f'#!/bin/sh\nexec /usr/bin/qacct -f {old} "$@"\n')
    (late / "qacct").chmod(0o755)
    user.environment["PATH"] = f"{late}:/usr/bin:/bin"
    kill_script = ["sh", "-c", "kill -9 $(ps -o ppid= $PPID); sleep 60"]
    job = user.submit(user.write_job("killed", kind="cpu", command=kill_script))
    user.wait_for_state(job, "UNKNOWN")
    assert "not in the queue, no exit record" in user.status(job)["reason"]
    (late / "qacct").unlink()
    user.wait_for_state(job, "FAILED")
    assert user.status(job)["exit_code"] == 137


def test_error_state(user: GridEngineUser) -> None:
    """Exit code 100 keeps a job in the queue in error: it has not ended, the reason tells, and it can be cancelled."""
    job = user.submit(user.write_job("error", kind="cpu", command=["sh", "-c", "exit 100"]))
    user.wait_for(job, lambda: "error state Eqw" in (user.status(job)["reason"] or ""), "in error state")
    assert user.status(job)["state"] == "PENDING"
    user.hpcjob("cancel", job)
    user.wait_for_state(job, "CANCELLED")


def test_hold_and_release(user: GridEngineUser) -> None:
    """A held job waits though there is room, until it is released."""
    job = user.submit(user.write_job("held", kind="cpu", command=["true"], extra=["-h"]))
    time.sleep(2)
    status = user.status(job)
    assert (status["state"], status["reason"]) == ("PENDING", "held")
    user.hpcjob("release", job)
    assert user.wait(job) == 0


def test_master_down_and_back(user: GridEngineUser, cell: GridEngine) -> None:
    """While the master is away nothing is told to have ended, a submission fails; then all is as it was."""
    go_on = user.folder / "go-on"
    wait = f"until [ -e {go_on} ]; do sleep 0.2; done"
    job = user.submit(user.write_job("steady", kind="cpu", command=["sh", "-c", wait]))
    user.wait_for_state(job, "RUNNING")
    (master,) = [pid for pid, line in user.bed.login.processes().items() if line.endswith("sge_qmaster")]
    os.kill(master, signal.SIGKILL)
    try:
        status = user.status(job)
        assert status["state"] == "UNKNOWN", status
        assert "qstat" in status["reason"]
        again = ["submit", "steady.yml", "--profile", PROFILE, "--account", GROUPS[0]]
        refused = user.run(BIN / "hpcjob", *again, check=False)
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr
        go_on.touch()
    finally:
        cell.start_qmaster()
    assert user.wait(job) == 0
    assert user.status(job)["state"] == "COMPLETED"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--account", "no-such-group"], "group no-such-group: no such group"),
        (["--account", GROUPS[0], "--queue", "rt_X"], "rt_X"),
    ],
)
def test_refused_submission_leaves_nothing(user: GridEngineUser, options: list[str], words: str) -> None:
    """What qsub refuses is told in its words, and no half record stays."""
    job = user.write_job("refused", kind="cpu", command=["true"])
    result = user.run(BIN / "hpcjob", "submit", job, "--profile", PROFILE, *options, check=False)
    assert result.returncode == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (user.folder / "outputs").exists()


def test_script_rendered_to_a_file_runs_by_itself(user: GridEngineUser) -> None:
    """``render -o job.sh`` and plain ``qsub -g`` give a job that makes its own folder; attach finds it later."""
    job = user.write_job("by-hand", kind="cpu", command=["sh", "-c", "echo hello from $(hostname)"])
    user.hpcjob("render", job, "--profile", PROFILE, "-o", "job.sh")
    id_ = user.run("qsub", "-g", GROUPS[0], "-terse", "-h", "job.sh").stdout.strip()
    user.hpcjob("attach", id_, "--profile", PROFILE)
    user.run("qrls", id_)
    assert user.wait(id_) == 0
    assert "hello from node" in user.log(id_)
    assert Path(user.status(id_)["jobdir"]).parent == user.folder / "outputs" / "by-hand"


@pytest.fixture(scope="session")
def expected(training: Training, bed: Testbed) -> dict[int, float]:
    """Losses of one process on the login host."""
    user = User(bed, bed.work / "gridengine-alone")
    user.hpcjob("submit", user.write_job("alone", train=training.job()), "--profile", "local", "--follow")
    return user.losses("latest")


@pytest.mark.parametrize("launcher", ["mpirun", pytest.param("torchrun", marks=pytest.mark.full)])
def test_two_nodes_train(user: GridEngineUser, training: Training, expected: dict[int, float], launcher: str) -> None:
    """``-l rt_F=2`` and four ranks: the losses are those of one process to 1e-5."""
    job = user.submit(
        user.write_job("curve", procs_per_node=SLOTS, train=training.job()), "--nodes", "2", "--launcher", launcher
    )
    code = user.wait(job)
    assert code == 0, "".join(path.read_text() for path in sorted(user.jobdir(job).glob("*_log.out")))
    assert user.losses(job) == pytest.approx(expected, abs=1e-5, rel=0)
    jobdir = user.jobdir(job)
    hosts = (jobdir / "hostfile").read_text().splitlines()
    assert sorted(hosts) == [f"node1 slots={SLOTS}", f"node2 slots={SLOTS}"]
    assert all((jobdir / f"{job}_{rank}_log.out").exists() for rank in range(2 * SLOTS))
    assert json.loads((jobdir / "outcome.json").read_text())["outcome"] == "completed"
    directives = (jobdir / "script.sh").read_text()
    assert "#$ -l rt_F=2\n" in directives
    assert yaml.safe_load((jobdir / "job.yml").read_text())["account"] == GROUPS[0]


@pytest.mark.parametrize(
    ("submissions", "polls"),
    [
        pytest.param("20", "100", id="20 submissions"),
        pytest.param("200", "1000", id="200 submissions", marks=[pytest.mark.full, pytest.mark.timeout(3600)]),
    ],
)
def test_nothing_false_is_concluded_from_faults(user: GridEngineUser, submissions: str, polls: str) -> None:
    """Three of ten commands fail, hang, answer with garbage, nothing or half: no job twice, none lost, no false end."""
    run = [sys.executable, "-m", "tests.cluster.faulty_run", "gridengine", submissions, polls]
    environment = {"PYTHONPATH": str(REPOSITORY), "XDG_STATE_HOME": str(user.folder / "state")}
    done = user.bed.login.run(*run, cwd=user.folder, env=environment, timeout_s=3600)
    print(done.stdout)
    assert "accepted" in done.stdout


def test_a_shell(user: GridEngineUser, bed: Testbed) -> None:
    """qrsh gives a terminal on the first of two nodes, for the group that pays; mpirun starts a rank on each."""
    argv = [str(BIN / "hpcjob"), "interactive", "-p", PROFILE, "-A", GROUPS[0], "-n", "2", "-t", "5m"]
    lines = ["uname -n; launch bash -c 'echo rank $RANK on $(uname -n) >seen.$RANK'; cat seen.*", "exit 3"]
    environment = {**bed.login.environment, **user.environment}
    code, shown = type_into(bed.login.command(argv, user.folder), lines, env=environment)
    assert code == 3, shown
    ranks = re.findall(r"rank (\d) on (node\d)\n", shown)
    assert sorted(ranks[-2:]) in ([("0", "node1"), ("1", "node2")], [("0", "node2"), ("1", "node1")]), shown


def test_check_of_the_profile(user: GridEngineUser) -> None:
    """Resource types are complexes here; names alone are told, and an equal profile is code 0."""
    done = user.run(BIN / "hpcjob", "profile", "check", "-p", PROFILE, "--json", check=False)
    rows = {row["what"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["scheduler"]["here"].startswith("SGE 8.1.9")
    assert rows["queue rt_F"]["here"] == "exists (limits unknown)"
    assert rows["queue rt_AF"]["here"] == "no such queue"
    assert done.returncode == 64
