"""Trouble of a real Slurm and a real Grid Engine themselves: jobs held, stopped, preempted; nodes and masters lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.test_gridengine import GridEngineUser, cell
from tests.cluster.test_gridengine import user as gridengine_user
from tests.cluster.testbed import Testbed
from tests.cluster.testbed.gridengine import GROUPS, GridEngine
from tests.cluster.testbed.processes import PATIENCE_S, ProcessId, start_ticks, wait_until
from tests.cluster.training import Training
from tests.cluster.user import BIN, PROFILE, User

pytestmark = pytest.mark.cluster

__all__ = ["cell", "gridengine_user"]

SLEEP = ["sleep", "300"]
STOPPED = 86
ENDED_STATES = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}


def process_of(bed: Testbed, host: str, program: str) -> int:
    """Return the pid of a daemon."""
    found = bed.hosts.by_name[host].processes()
    (pid,) = [pid for pid, command in found.items() if Path(command.split()[0]).name == program]
    return pid


# --- Slurm ------------------------------------------------------------------------------------------------------------


def test_slurm_hold_release_suspend_and_node_lost(user: User, bed: Testbed) -> None:
    """Held it waits though there is room; stopped it is SUSPENDED; its node lost, NODE_FAIL by the accounting.

    One that asks for three nodes of two is told as what never starts, while it waits and after it was cancelled.
    """
    whole = {"kind": "cpu", "command": SLEEP, "extra": ["--exclusive"]}
    first = user.submit(user.write_job("first", **whole), "--nodes", "2")
    user.wait_for_state(first, "RUNNING")
    second = user.submit(user.write_job("second", **whole))
    assert "PENDING" in user.hpcjob("hold", second)
    user.hpcjob("cancel", first)
    user.wait_for_state(first, "CANCELLED")
    user.wait_for(second, lambda: str(user.status(second)["reason"]).startswith("JobHeld"), "held")
    assert user.status(second)["state"] == "PENDING"
    user.hpcjob("release", second)
    user.wait_for_state(second, "RUNNING")
    assert "RUNNING; it continues" in user.hpcjob("hold", second)
    large = user.submit(user.write_job("large", **whole), "--nodes", "3")
    user.wait_for(large, lambda: user.status(large)["reason"] == "PartitionNodeLimit", "more nodes than there are")
    why = "it asks for more nodes than its partition allows"
    assert f"the job cannot start: {why}" in user.hpcjob("explain", large, check=False)
    user.hpcjob("cancel", large)
    assert f"it could never have started: {why}" in user.hpcjob("explain", large, check=False)
    user.run("scontrol", "suspend", second)
    user.wait_for_state(second, "SUSPENDED")
    user.run("scontrol", "resume", second)
    user.wait_for_state(second, "RUNNING")
    node = user.run("squeue", "-h", "-j", second, "-o", "%N").stdout.strip()
    try:
        user.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        user.wait_for_state(second, "NODE_FAIL")
        assert user.wait(second) != 0
    finally:  # it may have come back by itself
        user.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        wait_until(bed.slurm.idle, PATIENCE_S, "the node does not come back")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_slurm_node_dies(user: User, bed: Testbed) -> None:
    """slurmd is killed: until Slurm gives the node up nothing is told to have ended, then it is NODE_FAIL."""
    job = user.submit(user.write_job("lost", kind="cpu", command=SLEEP, nodelist=["node2"]))
    user.wait_for_state(job, "RUNNING")
    daemon = process_of(bed, "node2", "slurmd")
    os.kill(daemon, signal.SIGKILL)
    try:
        assert user.status(job)["state"] not in ENDED_STATES
        user.wait_for_state(job, "NODE_FAIL", timeout_s=240)
    finally:
        bed.slurm.start_slurmd(bed.hosts.by_name["node2"])
        wait_until(bed.slurm.idle, 120, "the node does not come back")


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("trouble", ["frozen", "down"])
def test_slurm_controller_frozen_or_down_and_back(user: User, bed: Testbed, trouble: str) -> None:
    """Meanwhile no job is told to have ended, none is lost, a submission fails or is found; then all is as it was."""
    go_on = user.folder / "go-on"
    wait = f"until [ -e {go_on} ]; do sleep 0.2; done"
    running = user.submit(user.write_job("steady", kind="cpu", command=["sh", "-c", wait]))
    waiting = user.submit(user.write_job("waiting", kind="cpu", command=["true"]), "--after", running)
    user.wait_for_state(running, "RUNNING")
    controller = process_of(bed, "login", "slurmctld")
    if trouble == "frozen":
        os.kill(controller, signal.SIGSTOP)
    else:  # what it had no time to save is lost with it
        before_ns = bed.slurm.saved_ns()
        user.run("scontrol", "update", f"jobid={waiting}", "comment=to be saved")
        wait_until(lambda: bed.slurm.saved_ns() > before_ns, PATIENCE_S, "the controller does not save its jobs")
        ProcessId.of(controller).kill()
    try:
        for job in (running, waiting):
            assert user.status(job)["state"] not in ENDED_STATES
        again = user.run(
            BIN / "hpcjob", "submit", "waiting.yml", "-p", PROFILE, "--name", "late", check=False, timeout_s=300
        )
        assert "Traceback" not in again.stderr
        assert again.returncode == 1, again.stdout
        go_on.touch()
    finally:
        if trouble == "frozen":
            os.kill(controller, signal.SIGCONT)
        else:
            bed.slurm.start_slurmctld()
    assert user.wait(running, timeout_s=300) == 0
    assert user.wait(waiting, timeout_s=300) == 0
    late = user.run("sacct", "-X", "-n", "-P", "--name=late", "--format=JobID").stdout.split()
    assert len(late) <= 1, "the submission that was not answered was made twice"
    wait_until(bed.slurm.idle, PATIENCE_S, "the nodes do not come back")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_slurm_preempted(user: User) -> None:
    """A job that Slurm ends for one of a partition before its own is PREEMPTED."""
    job = user.submit(user.write_job("modest", kind="cpu", command=SLEEP, extra=["--exclusive"]), "--nodes", "2")
    user.wait_for_state(job, "RUNNING")
    urgent = user.submit(user.write_job("urgent", kind="cpu", command=["true"], queue="urgent"))
    user.wait_for_state(job, "PREEMPTED")
    assert user.wait(urgent) == 0


# --- Grid Engine ------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.timeout(900)
def test_gridengine_hold_release_and_suspend(gridengine_user: GridEngineUser) -> None:
    """Held it waits though there is room, released it runs; stopped it is SUSPENDED, and goes on."""
    user = gridengine_user
    first = user.submit(user.write_job("first", kind="cpu", command=SLEEP), "--nodes", "2")
    user.wait_for_state(first, "RUNNING")
    second = user.submit(user.write_job("second", kind="cpu", command=SLEEP))
    assert "PENDING (held)" in user.hpcjob("hold", second)
    user.hpcjob("cancel", first)
    user.wait_for_state(first, "CANCELLED")
    assert (user.status(second)["state"], user.status(second)["reason"]) == ("PENDING", "held")
    user.hpcjob("release", second)
    user.wait_for_state(second, "RUNNING")
    user.run("qmod", "-sj", second)
    user.wait_for_state(second, "SUSPENDED")
    user.run("qmod", "-usj", second)
    user.wait_for_state(second, "RUNNING")
    user.hpcjob("cancel", second)
    user.wait_for_state(second, "CANCELLED")


def is_missed(bed: Testbed, node: str) -> bool:
    """Whether the state of the node's queue has the letter u, unknown: its daemon is not heard of."""
    rows = [line.split() for line in bed.login.run("qstat", "-f").stdout.splitlines()]
    return any(row[:1] == [f"all.q@{node}"] and len(row) > 5 and "u" in row[5] for row in rows)


@pytest.fixture
def second_node_alone(bed: Testbed, cell: GridEngine) -> Iterator[str]:
    """The first node takes no jobs; after the test both are as before."""
    bed.login.run("qmod", "-d", "all.q@node1")
    yield "node2"
    bed.login.run("qmod", "-e", "all.q@node1")
    if not any(Path(line.split()[0]).name == "sge_execd" for line in bed.hosts.by_name["node2"].processes().values()):
        cell.start_execd(bed.hosts.by_name["node2"])
    wait_until(cell.ready, 120, "the queue instances do not come back")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_gridengine_node_dies(gridengine_user: GridEngineUser, bed: Testbed, second_node_alone: str) -> None:
    """sge_execd is killed with the job: it has not ended while the cell keeps it, and is FAILED once it is given up."""
    user = gridengine_user
    job = user.submit(user.write_job("lost", kind="cpu", command=SLEEP))
    user.wait_for_state(job, "RUNNING")
    node = bed.hosts.by_name[second_node_alone]
    os.kill(process_of(bed, second_node_alone, "sge_execd"), signal.SIGKILL)
    commands = node.processes()
    for pid in sorted(commands, key=lambda pid: (start_ticks(pid) or 0, pid)):  # the script before what it would note
        command = commands[pid]
        if "sge_shepherd" in command or "job_scripts" in command or str(user.folder) in command:
            with contextlib.suppress(ProcessLookupError):  # ended with the one before it
                os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_missed(bed, second_node_alone), 120, "the cell does not miss its node")
    status = user.status(job)
    assert status["state"] not in ENDED_STATES, status
    bed.login.run("qdel", "-f", job)
    user.wait_for_state(job, "FAILED")
    assert "qdel -f" in user.status(job)["reason"]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_gridengine_master_frozen_and_back(gridengine_user: GridEngineUser, bed: Testbed) -> None:
    """While the master hangs nothing is told to have ended; a submission is not made twice; then all is as it was."""
    user = gridengine_user
    go_on = user.folder / "go-on"
    wait = f"until [ -e {go_on} ]; do sleep 0.2; done"
    job = user.submit(user.write_job("steady", kind="cpu", command=["sh", "-c", wait]))
    user.wait_for_state(job, "RUNNING")
    master = process_of(bed, "login", "sge_qmaster")
    os.kill(master, signal.SIGSTOP)
    try:
        status = user.hpcjob("status", job, "--json", timeout_s=300)
        assert not any(f'"state": "{state}"' in status for state in ENDED_STATES), status
        again = ["submit", "steady.yml", "--profile", "cell", "--account", GROUPS[0], "--name", "late"]
        submitting = user.start(BIN / "hpcjob", *again, output=user.folder / "late.out")
        go_on.touch()
    finally:
        os.kill(master, signal.SIGCONT)
    submitting.wait(300)
    assert user.wait(job, timeout_s=300) == 0
    queue = user.run("qstat", "-r").stdout + user.run("qacct", "-j", "late", check=False).stdout
    assert queue.count("late") <= 2, queue


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_gridengine_qdel_leaves_time_to_save(
    gridengine_user: GridEngineUser, cell: GridEngine, training: Training, launcher: str
) -> None:
    """With ``notify`` in the profile a plain qdel lets the trainer of two nodes save a checkpoint before the kill."""
    user = gridengine_user
    user.write_profile({"extends": "cell", "scheduler": {"notify": True}}, "noticed")
    cell.qconf("-rattr", "queue", "notify", "00:01:30", "all.q")
    try:
        save = user.folder / "checkpoints"
        train = training.job(train_iters=20_000, save=str(save))
        job = user.submit(
            user.write_job("noticed", train=train), "--nodes", "2", "--launcher", launcher, profile="noticed"
        )
        user.wait_for(job, lambda: bool(user.losses(job)), "training", timeout_s=300)
        user.run("qdel", job)
        assert user.wait(job, timeout_s=300) == STOPPED, user.log(job)
        outcome = json.loads((user.jobdir(job) / "outcome.json").read_text())
        assert outcome["outcome"] == "stopped"
        assert (save / "latest").read_text().strip() == f"global_step{outcome['iteration']}"
        record = json.loads((user.jobdir(job) / f"{job}_exit.json").read_text())
        assert (record["code"], record["signal"]) == (STOPPED, "USR2")
    finally:
        cell.qconf("-rattr", "queue", "notify", "00:00:05", "all.q")
