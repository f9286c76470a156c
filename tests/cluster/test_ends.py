"""How jobs end: in time with a checkpoint, or with no process left whichever of them was killed."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.cluster.testbed import Testbed
from tests.cluster.testbed.processes import PATIENCE_S, TestbedError, oldest, wait_until
from tests.cluster.training import Training
from tests.cluster.user import User

pytestmark = pytest.mark.cluster

LAUNCHERS = ("mpirun", "pdsh", "srun", "torchrun")
MARK = "a-rank-of-this-test"
SAVED_FOR_WALLTIME, STOPPED = 85, 86
ENDLESS = 20_000  # iterations: minutes, and an index map that is made in a moment

# How the process that started the ranks, or those of node2, is known by its command line.
LAUNCHER_PROCESS = {
    "mpirun": ("node1", "mpirun "),
    "pdsh": ("node1", "pdsh "),
    "srun": ("node1", "srun "),
    "torchrun": ("node2", "torch.distributed.run "),
}


def processes(bed: Testbed, host: str, words: str) -> list[int]:
    """Processes of one host that have these words in their command line."""
    return [pid for pid, command in bed.hosts.by_name[host].processes().items() if words in f"{command} "]


def on_nodes(bed: Testbed) -> set[int]:
    """All processes of the nodes."""
    return {pid for node in bed.nodes for pid in node.processes()}


def start_sleeping_ranks(user: User, launcher: str) -> str:
    """Start two ranks a node that would sleep on for ten minutes; the job's id once all four are there."""
    command = ["python", "-c", "import time; time.sleep(600)", MARK]
    job = user.write_job("sleep", procs_per_node=2, command=command)
    id_ = user.submit(job, "--nodes", "2", "--launcher", launcher)

    def has_ranks() -> bool:
        return all(len(processes(user.bed, node.name, f"time.sleep(600) {MARK}")) >= 2 for node in user.bed.nodes)

    user.wait_for(id_, has_ranks, "with all ranks")
    return id_


KILLS = [(launcher, "rank") for launcher in LAUNCHERS] + [("pdsh", "launcher"), ("torchrun", "script")]
OTHER_KILLS = [(each, victim) for each in LAUNCHERS for victim in ("launcher", "script") if (each, victim) not in KILLS]


@pytest.mark.parametrize(
    ("launcher", "victim"), [*KILLS, *(pytest.param(*other, marks=pytest.mark.full) for other in OTHER_KILLS)]
)
def test_no_process_is_left_after_kill(user: User, bed: Testbed, launcher: str, victim: str) -> None:
    """SIGKILL of one rank, of the launcher or of the job script ends all processes of the job on all nodes."""
    idle = on_nodes(bed)
    id_ = start_sleeping_ranks(user, launcher)
    host, words = {
        "rank": ("node2", MARK),
        "launcher": LAUNCHER_PROCESS[launcher],
        "script": ("node1", "slurm_script"),
    }[victim]
    os.kill(oldest(processes(bed, host, words)), signal.SIGKILL)

    try:
        wait_until(lambda: on_nodes(bed) <= idle, PATIENCE_S, f"processes are left after kill -9 of the {victim}")
    except TestbedError as error:
        left = {pid: words for node in bed.nodes for pid, words in node.processes().items() if pid not in idle}
        raise TestbedError(f"{error}: {left}\n{user.log(id_)}") from None
    assert user.wait(id_) not in (0, SAVED_FOR_WALLTIME, STOPPED)
    assert user.status(id_)["state"] == "FAILED"


@pytest.mark.parametrize(
    "launcher", ["torchrun", "pdsh", *(pytest.param(other, marks=pytest.mark.full) for other in ("mpirun", "srun"))]
)
def test_warning_before_the_walltime_saves_a_checkpoint(user: User, training: Training, launcher: str) -> None:
    """The scheduler's signal before the walltime makes every rank save and end; the job's code is 85."""
    save = user.folder / "checkpoints"
    job = user.write_job("stopped", train=training.job(train_iters=ENDLESS, save=str(save)))
    id_ = user.submit(job, "--nodes", "2", "--launcher", launcher)
    user.wait_for(id_, lambda: bool(user.losses(id_)), "training")
    user.run("scancel", "--signal=USR2", "--batch", id_)

    assert user.wait(id_) == SAVED_FOR_WALLTIME, user.log(id_)
    outcome = json.loads((user.jobdir(id_) / "outcome.json").read_text())
    assert outcome["outcome"] == "saved_for_walltime"
    assert (save / "latest").read_text().strip() == f"global_step{outcome['iteration']}"
    record = json.loads((user.jobdir(id_) / f"{id_}_exit.json").read_text())
    assert (record["code"], record["signal"]) == (SAVED_FOR_WALLTIME, None)


@pytest.mark.full
def test_slurm_itself_warns_before_the_walltime(user: User, training: Training) -> None:
    """Without anybody's help the job asks Slurm for the signal in time, saves and ends within its walltime."""
    save = user.folder / "checkpoints"
    job = user.write_job("walltime", stop_before_s=60, train=training.job(train_iters=ENDLESS, save=str(save)))
    id_ = user.submit(job, "--nodes", "2", "--walltime", "2:00", "--launcher", "srun")
    assert user.wait(id_, timeout_s=240) == SAVED_FOR_WALLTIME, user.log(id_)
    assert (save / "latest").exists()
    user.wait_for_accounting(id_, "FAILED")


def test_cancelled_training_saves_a_checkpoint(user: User, training: Training) -> None:
    """``hpcjob cancel`` lets the trainer save before it ends."""
    save = user.folder / "checkpoints"
    job = user.write_job("cancelled", train=training.job(train_iters=ENDLESS, save=str(save)))
    id_ = user.submit(job, "--nodes", "2", "--launcher", "mpirun")
    user.wait_for(id_, lambda: bool(user.losses(id_)), "training")
    user.hpcjob("cancel", id_)
    user.wait_for_state(id_, "CANCELLED")
    outcome = json.loads((user.jobdir(id_) / "outcome.json").read_text())
    assert outcome["outcome"] == "stopped"
    assert (save / "latest").exists()
