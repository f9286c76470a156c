"""Each launcher trains on two nodes as one process does."""

from __future__ import annotations

import json

import pytest

from tests.cluster.training import ITERATIONS, Training
from tests.cluster.user import User

pytestmark = pytest.mark.cluster

LAUNCHERS = ("mpirun", "pdsh", "srun", "torchrun")
SLOTS = 2  # ranks of each node


@pytest.fixture(scope="session")
def local_losses(training: Training, bed: object) -> dict[int, float]:
    """Losses of one process on the login host, under the profile ``local``."""
    user = User(bed, training.config.parent / "local")  # type: ignore[arg-type]
    job = user.write_job("local", train=training.job())
    user.hpcjob("submit", job, "--profile", "local", "--follow")
    losses = user.losses("latest")
    assert sorted(losses) == list(range(1, ITERATIONS + 1))
    return losses


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_nodes_give_the_loss_curve_of_one_process(
    user: User, training: Training, local_losses: dict[int, float], launcher: str
) -> None:
    """Four ranks on two nodes under each launcher give the losses of one process to 1e-5."""
    job = user.write_job("curve", procs_per_node=SLOTS, train=training.job())
    id_ = user.submit(job, "--nodes", "2", "--launcher", launcher)
    assert user.wait(id_) == 0, user.log(id_)
    assert user.losses(id_) == pytest.approx(local_losses, abs=1e-5, rel=0)

    jobdir = user.jobdir(id_)
    assert (jobdir / "hostfile").read_text() == f"node1 slots={SLOTS}\nnode2 slots={SLOTS}\n"
    assert all((jobdir / f"{id_}_{rank}_log.out").exists() for rank in range(2 * SLOTS))
    assert json.loads((jobdir / "outcome.json").read_text())["outcome"] == "completed"
    assert json.loads((jobdir / f"{id_}_exit.json").read_text())["code"] == 0
