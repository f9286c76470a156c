"""The shipped 2.7B jobs with a small width in fp32, as a user submits them: 8 ranks on a node, 16 on two."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tests.cluster.testbed.bed import REPOSITORY
from tests.cluster.training import Training
from tests.cluster.user import User
from tests.neoxlite.training.small_shipped import small_run

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.timeout(3600)]

RANKS_OF_A_NODE = 8
ITERATIONS = 6
LAYERS = re.compile(r"RANK=(\d+) STAGE=(\d+) LAYERS=(\d+) \[(\d+), (\d+)\)")
# One batch for all, that of the largest run: accumulation makes up for fewer replicas.
SMALL = {**small_run(ITERATIONS), "train_batch_size": 64}


def job_of(training: Training, shipped: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the keys of a shipped job, or of one process, with a small width and this data in place of its own."""
    shipped = shipped or {"train": {"configs": ["2-7B.yml"]}, "nodes": 1}
    data = yaml.safe_load(training.config.read_text())["data_path"]
    configs = [name for name in shipped["train"]["configs"] if name != "local_setup.yml"]
    return {"nodes": shipped["nodes"], "train": {"configs": configs, "set": {**SMALL, "data_path": data}}}


@pytest.fixture(scope="module")
def alone(bed: Any, training: Training) -> dict[int, float]:
    """Losses of one process on the login host."""
    user = User(bed, bed.work / "one_process")
    job = job_of(training)
    job["train"]["set"]["train_micro_batch_size_per_gpu"] = SMALL["train_batch_size"]
    user.hpcjob("submit", user.write_job("alone", **job), "--profile", "local", "--follow", timeout_s=900)
    losses = user.losses("latest")
    assert sorted(losses) == list(range(1, ITERATIONS + 1))
    return losses


@pytest.mark.parametrize(
    ("name", "ranks", "stages"),
    [
        ("1node-dp8-tp1-pp1", 8, {(0, 0, 37, 0, 37)}),
        ("2node-dp16-tp1-pp1", 16, {(0, 0, 37, 0, 37)}),
        ("1node-dp4-tp1-pp2", 8, {(0, 0, 18, 0, 18), (4, 1, 19, 18, 37)}),
    ],
)
def test_a_shipped_job_has_one_process_s_curve(
    name: str, ranks: int, stages: set[tuple[int, ...]], user: User, training: Training, alone: dict[int, float]
) -> None:
    """32 blocks in the layout of its name lose what one process loses, to 1e-5, and the ranks' logs have the layers."""
    shipped = yaml.safe_load((REPOSITORY / "jobs" / "2.7B" / f"{name}.yml").read_text())
    job = user.write_job(name, procs_per_node=RANKS_OF_A_NODE, walltime="50:00", **job_of(training, shipped))
    id_ = user.submit(job)
    assert user.wait(id_, timeout_s=3000) == 0, user.log(id_)
    jobdir = user.jobdir(id_)
    logs = [path.read_text() for path in jobdir.glob(f"{id_}_*_log.out")]
    assert len(logs) == ranks
    assert {tuple(map(int, found)) for log in logs for found in LAYERS.findall(log)} == stages
    assert user.losses(id_) == pytest.approx(alone, rel=1e-5, abs=0)
    assert json.loads((jobdir / "outcome.json").read_text())["outcome"] == "completed"
    print(name, user.losses(id_), *(match[0] for log in logs if (match := LAYERS.search(log))), sep="\n")
