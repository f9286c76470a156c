"""Ranks in a container: the image's Python and commands, folders bound, once inside not entered again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcjob.errors import InputError
from hpcjob.render import render
from tests.hpcjob.render.plans import plan
from tests.hpcjob.render.world import World

# What apptainer(1) does with `exec [--nv] --bind X ... IMAGE COMMAND...`, as far as a script sees it.
APPTAINER = """#!/bin/bash
printf '%s\\n' "$*" >>"$STUB_CALLS"
[[ $1 == exec ]] && shift
while [[ $1 == -* ]]; do [[ $1 == --bind ]] && shift; shift; done
export APPTAINER_CONTAINER=$1 IMAGE=$1
shift
exec "$@"
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A cluster of stubs that has apptainer."""
    world = World(tmp_path)
    (world.bin / "apptainer").write_text(APPTAINER)
    (world.bin / "apptainer").chmod(0o755)
    (world.submit_dir / "画 像.sif").touch()
    return world


CONTAINER: dict[str, Any] = {"python": {"container": {"image": "画 像.sif", "binds": ["/groups/my data:/data"]}}}


@pytest.mark.parametrize("launcher", ["srun", "mpirun", "torchrun"])
def test_every_rank_is_inside(world: World, launcher: str) -> None:
    """The command runs in the image under every launcher; where the agent is inside, its ranks are not put in again."""
    run = world.run(world.plan("lab", launcher=launcher, **CONTAINER), env={"STUB_CALLS": str(world.folder / "calls")})
    assert run.code == 0, run.log
    ranks = run.arrived()
    assert len(ranks) == 4
    assert {rank.env["IMAGE"] for rank in ranks} == {"画 像.sif"}
    calls = (world.folder / "calls").read_text().splitlines()
    assert all(call.startswith(f"exec --nv --bind {world.submit_dir} --bind ") for call in calls)
    assert all("--bind /groups/my data:/data 画 像.sif python" in call for call in calls)


def test_commands_run_inside_too(world: World) -> None:
    """Not Python alone."""
    case = world.plan("lab", kind="cpu", nodes=2, command=["bash", "-c", 'echo "in $IMAGE"'], **CONTAINER)
    run = world.run(case, env={"STUB_CALLS": str(world.folder / "calls")})
    assert (run.code, "in 画 像.sif" in run.log) == (0, True), run.log


def test_one_step_alone(world: World) -> None:
    """A step may be in a container while the others are not."""
    steps = [
        {"name": "out", "command": ["bash", "-c", 'echo "out${IMAGE-}"']},
        {"name": "in", "command": ["bash", "-c", 'echo "in $IMAGE"'], **CONTAINER},
    ]
    run = world.run(world.plan("lab", steps=steps), env={"STUB_CALLS": str(world.folder / "calls")})
    assert run.code == 0, run.log
    assert {"out", "in 画 像.sif"} <= set(run.log.splitlines())


def test_what_is_missing(world: World) -> None:
    """No image, no apptainer: code 87 and one line."""
    (world.submit_dir / "画 像.sif").unlink()
    run = world.run(world.plan("lab", **CONTAINER))
    assert (run.code, "python.container: there is no image 画 像.sif" in run.log) == (87, True)
    (world.bin / "apptainer").unlink()
    (world.submit_dir / "画 像.sif").touch()
    run = world.run(world.plan("lab", **CONTAINER))
    assert (run.code, "there is neither apptainer nor singularity" in run.log) == (87, True)


def test_an_address_is_left_to_the_runtime() -> None:
    """``docker://`` is no file."""
    script = render(plan("lab", command=["python"], python={"container": {"image": "docker://nvcr.io/x:1"}}))
    assert "image=docker://nvcr.io/x:1\n" in script


PYXIS: dict[str, Any] = {"settings": {"scheduler": {"pyxis": True}}}
HELP = "  --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"  # a line of `srun --help` with NVIDIA's pyxis


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_pyxis(world: World, launcher: str) -> None:
    """srun starts the ranks in the image, once; they see its PATH, not that of the modules; the folders are mounted."""
    calls = world.folder / "calls"
    case = world.plan("lab", launcher=launcher, **PYXIS, **CONTAINER)
    run = world.run(case, env={"STUB_CALLS": str(calls), "STUB_PYXIS": HELP})
    assert run.code == 0, run.log
    ranks = run.arrived()
    assert len(ranks) == 4
    for rank in ranks:
        assert rank.env["IMAGE"] == f"{world.submit_dir}/画 像.sif"
        assert rank.env["PATH"].startswith("/image/bin:")
        assert rank.env["PATH"].count("/image/bin:") == 1
    mounts = f"{world.submit_dir}:{world.submit_dir},{run.jobdir}:{run.jobdir},/groups/my data:/data"
    assert set(calls.read_text().splitlines()) == {
        f"--container-image={world.submit_dir}/画 像.sif",
        f"--container-workdir={world.submit_dir}",
        f"--container-mounts={mounts}",
    }


def test_pyxis_is_missing(world: World) -> None:
    """A profile that says so of a Slurm without it: code 87 and one line."""
    run = world.run(world.plan("lab", launcher="srun", **PYXIS, **CONTAINER), env={"STUB_CALLS": "/dev/null"})
    assert (run.code, "this srun has no --container-image (scheduler.pyxis of the profile)" in run.log) == (87, True)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            {"launcher": "mpirun"},
            "launcher: mpirun with python.container on lab: pyxis starts images by srun\nuse srun or",
        ),
        ({"launcher": "pdsh"}, "launcher: pdsh with python.container on lab"),
        (
            {"launcher": "srun", "python": {"container": {"image": "a", "binds": ["/a,b"]}}},
            "python.container.binds: '/a,b': pyxis does not accept a comma",
        ),
        (
            {"steps": [{"name": "x", "command": ["a"], "launcher": "srun", "python": {"container": {"image": "b"}}}]},
            "steps: with pyxis all launched steps run in the job's own python.container",
        ),
    ],
)
def test_what_pyxis_cannot(world: World, job: dict[str, Any], message: str) -> None:
    """Refused before anything is submitted."""
    with pytest.raises(InputError) as error:
        world.plan("lab", **PYXIS, **{**CONTAINER, **job})
    assert str(error.value).startswith(message)
