"""Grid Engine's warning before a kill (``-notify``): all processes of the job get it, the script alone acts on it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from hpcjob.render import render
from tests.hpcjob.render.plans import plan, profile
from tests.hpcjob.render.test_end import TRAINER, job, record
from tests.hpcjob.render.world import World

NOTIFY = {"scheduler": {"notify": True}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A cluster of stubs."""
    return World(tmp_path, "it's 学習")


def test_asked_for_by_the_profile_alone() -> None:
    """submit(1): -notify sends SIGUSR1 before a stop and SIGUSR2 before a kill; no other scheduler has the like."""
    with_it = render(plan(profile("abci2", **NOTIFY), command=["true"]))
    without = render(plan(profile("abci2"), command=["true"]))
    assert "#$ -notify" in with_it.splitlines()
    assert "notify" not in without.replace("HPCJOB_NOTIFY", "")
    assert "notify" not in render(plan(profile("lab", **NOTIFY), command=["true"])).replace("HPCJOB_NOTIFY", "")


@pytest.mark.ci
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_qdel_leaves_the_trainer_time_to_save(world: World, launcher: str) -> None:
    """Both signals go to the whole process group, as the shepherd sends them; the ranks save, and end by themselves."""
    case = world.plan("abci2", settings=NOTIFY, train={"configs": ["x.yml"]}, launcher=launcher, env={"WORK": TRAINER})
    with job(world, case) as started:
        started.wait_for(lambda: len([*started.jobdir.glob("arrived.*.env")]) == 4, "start of the ranks")
        os.killpg(started.script.pid, signal.SIGUSR1)  # a suspension: nothing happens
        os.killpg(started.script.pid, signal.SIGUSR2)
        assert started.end() == 86, started.log()
        told = record(started)
        assert (told["code"], told["signal"], told["step"]) == (86, "USR2", "train")


@pytest.mark.full
def test_before_the_limit_the_timer_has_asked_already(world: World) -> None:
    """What the walltime asked for stays: the code is that of a run saved for it."""
    slow = TRAINER.replace("case $(<", "sleep 2\ncase $(<")
    case = world.plan(
        "abci2", settings=NOTIFY, train={"configs": ["x.yml"]}, env={"WORK": slow}, walltime="60s", stop_before_s=58
    )
    with job(world, case) as started:
        started.wait_for(lambda: (started.jobdir / "stop").exists(), "stop file")
        os.killpg(started.script.pid, signal.SIGUSR2)
        assert started.end() == 85, started.log()
