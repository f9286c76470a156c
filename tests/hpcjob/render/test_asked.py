"""What a job asks for beside nodes and time: as directives of each scheduler, and done by the script itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcjob.errors import InputError
from hpcjob.render import render
from tests.hpcjob.render.plans import plan, profile
from tests.hpcjob.render.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A cluster of stubs."""
    return World(tmp_path)


def directives(where: str, **keys: Any) -> set[str]:
    """Return the directives that ``keys`` add to a job's script."""

    def of(**more: Any) -> set[str]:
        script = render(plan(where, nodes=1, command=["true"], **more))
        return {line for line in script.splitlines() if line.startswith(("#SBATCH", "#PBS", "#$", "#PJM"))}

    return of(**keys) - of()


def test_directives() -> None:
    """sbatch(1) of Slurm 22.05; qsub(1B) of OpenPBS; submit(1) of Grid Engine; pjsub's options in Fugaku's manual."""
    mail = {"mail": ["begin", "end", "fail"], "mail_to": "me@example.org"}
    assert directives("lab", nodelist=["node[1-3]", "node7"], constraint="a100&nvlink", qos="long", exclusive=True) == {
        "#SBATCH --nodelist=node[1-3],node7", '#SBATCH --constraint="a100&nvlink"', "#SBATCH --qos=long",
        "#SBATCH --exclusive",
    }  # fmt: skip
    assert directives("lab", **mail) == {
        "#SBATCH --mail-type=BEGIN,END,FAIL", "#SBATCH --mail-user=me@example.org"
    }  # fmt: skip
    assert directives("abci3", exclusive=True, **mail) == {
        "#PBS -l place=scatter:excl", "#PBS -m bea", "#PBS -M me@example.org"
    }  # fmt: skip
    assert directives("abci2", reservation="4321", **mail) == {"#$ -ar 4321", "#$ -m bea", "#$ -M me@example.org"}
    assert directives("wisteria", **mail) == {"#PJM -m b,e", "#PJM --mail-list me@example.org"}


@pytest.mark.parametrize(
    ("where", "keys", "words"),
    [
        ("abci3", {"qos": "long"}, "qos: pbs does not support this"),
        ("abci2", {"constraint": "a"}, "constraint: gridengine does not support this"),
        ("wisteria", {"exclusive": True}, "exclusive: pjm does not support this"),
        ("local", {"mail": ["end"], "mail_to": "a@b"}, "mail: local does not support this"),
        ("lab", {"mail": ["end"]}, "mail: no address"),
        ("lab", {"mail": ["end"], "mail_to": "a@b\n#SBATCH -x"}, "mail"),
        ("lab", {"mail": ["end"], "mail_to": "$(id)"}, "mail"),
        ("lab", {"qos": "a b"}, "qos"),
        ("lab", {"nodelist": ["a;b"]}, "nodelist"),
        ("lab", {"constraint": 'a"b'}, "constraint"),
        ("lab", {"nodes": 2, "stage_in": ["a"]}, "2 nodes"),
        ("lab", {"stage_out": ["../x"]}, "leads out"),
        ("lab", {"stage_out": ["/etc"]}, "leads out"),
    ],
)
def test_refused(where: str, keys: dict[str, Any], words: str) -> None:
    """By the key's name, with what to do."""
    with pytest.raises(InputError) as caught:
        render(plan(where, **{"nodes": 1, "command": ["true"], **keys}))
    assert words in caught.value.message
    assert caught.value.hint


def test_kinds_without_gpus_go_to_their_queue() -> None:
    """ABCI 3.0 has rt_HC for jobs without GPUs; what the job says itself goes before."""
    asked = {kind: plan("abci3", nodes=1, kind=kind, command=["true"]).queue for kind in ("train", "cpu", "setup")}
    assert asked == {"train": "rt_HF", "cpu": "rt_HC", "setup": "rt_HC"}
    assert plan("abci3", nodes=1, kind="cpu", queue="rt_HG", command=["true"]).queue == "rt_HG"


def test_no_peak_for_a_run_without_gpus() -> None:
    """A trainer on CPUs would print an MFU of 0.0 % of a GPU's peak."""
    exported = "export NEOXLITE_PEAK_TFLOPS="
    assert f"{exported}312" in render(plan("lab"))
    assert exported not in render(plan("lab", gpus_per_node=0, procs_per_node=2))


def test_limits_reach_every_rank(world: World) -> None:
    """Set before the launch, in every rank too; one that cannot be had ends the job with the number that can."""
    case = world.plan(
        "lab", launcher="srun", command=["bash", "-c", "ulimit -n"], limits={"nofile": 321}, procs_per_node=2
    )
    run = world.run(case)
    assert run.code == 0, run.log
    logs = sorted(run.jobdir.glob("*_log.out"))
    assert len(logs) == 4
    assert {path.read_text().strip() for path in logs} == {"321"}
    run = world.run(world.plan("lab", command=["true"], limits={"nofile": 999_999_999}))
    assert run.code == 87
    assert "limits.nofile: 999999999 requested, at most " in run.log


@pytest.mark.parametrize(("code", "kept"), [(0, True), (5, True)])
def test_scratch(world: World, code: int, kept: bool) -> None:
    """Files come in, results go out at every end, and the scratch is empty afterwards."""
    scratch = world.folder / "scratch 用"
    scratch.mkdir()
    (world.submit_dir / "データ").write_text("in\n")
    work = f'cat "$HPCJOB_SCRATCH/データ" >"$HPCJOB_SCRATCH/out put"; exit {code}'
    case = world.plan("local", kind="cpu", command=["bash", "-c", work], stage_in=["データ"], stage_out=["out put"],
                      settings={"node": {"gpus": 0, "scratch": "MY_SCRATCH"}})  # fmt: skip
    run = world.run(case, env={"MY_SCRATCH": str(scratch)})
    assert run.code == code, run.log
    assert (run.jobdir / "stage_out" / "out put").read_text() == "in\n"
    assert not list(scratch.iterdir())
    assert run.record["code"] == code
    run = world.run(case)
    assert (run.code, "node.scratch: MY_SCRATCH is not set here" in run.log) == (87, True)


def test_a_check_that_fails_before_the_scratch(world: World) -> None:
    """There is nothing to copy or remove, and the log says what failed and no more."""
    run = world.run(world.plan("local", kind="cpu", command=["true"], source=["none"], stage_out=["x"]))
    assert run.code == 87
    assert run.log.splitlines()[1:] == ["hpcjob: check: source: cannot read none"]


def test_paths_of_the_home_folder(world: World) -> None:
    """`~/` means the same in a job file as in a shell, in every key that takes a path, and is the home on the node."""
    home = world.folder / "ho me"
    (home / "ve nv/bin").mkdir(parents=True)
    (home / "ve nv/bin/activate").write_text(f"PATH={world.bin}:$PATH ENTERED=1\nexport ENTERED\n")
    (home / "it's.sh").write_text("export SOURCED=1\n")
    (home / "in-7").write_text("staged\n")
    case = world.plan(
        "local",
        kind="cpu",
        command=["bash", "-c", 'cat "$HPCJOB_SCRATCH"/in-* && echo "$ENTERED $SOURCED"'],
        python={"venv": "~/ve nv"},
        source=["~/it's.sh"],
        stage_in=["~/in-{array.value}", "~/it's.sh"],
        array=["7"],
    )
    run = world.run(case, env={"HOME": str(home)})
    assert run.code == 0, run.said
    log = next(run.jobdir.glob("0/*_job.out")).read_text()
    assert "staged\n1 1\n" in log
    image = {"container": {"image": "~/x.sif", "binds": ["~/a b", "~/c:/d"]}}
    bound = render(plan("abci3", nodes=1, command=["a"], python=image, module_use=["~/modules"]))
    assert 'image="$HOME"/x.sif\n' in bound
    assert """--bind "$HOME"/'a b' --bind "$HOME"/c:/d)\n""" in bound
    assert 'module use "$HOME"/modules\n' in bound
    pyxis = profile("lab", scheduler={"type": "slurm", "pyxis": True})
    twice = render(plan(pyxis, nodes=1, command=["a"], python=image))
    assert """container_mounts+=,"$HOME"/'a b':"$HOME"/'a b'\ncontainer_mounts+=,"$HOME"/c:/d\n""" in twice


def test_the_record_of_a_run_has_no_secrets(world: World) -> None:
    """Variables are written down, for nobody else to read; a secret's value is left out, and a URL's password."""
    secrets = {"WANDB_API_KEY": "s3cr3t", "GITHUB_PAT": "s3cr3t"}
    others = {"https_proxy": "http://me:s3cr3t@proxy:8080", "LESS": "-R", "A_PATH": "/a"}
    run = world.run(world.plan("local", kind="cpu", command=["true"]), env={**secrets, **others})
    record = run.jobdir / "run_record.txt"
    text = record.read_text()
    for name in secrets:
        assert f"{name}=(left out)" in text
    assert 'declare -x https_proxy="http://(left out)@proxy:8080"' in text
    assert 'declare -x LESS="-R"' in text
    assert 'declare -x A_PATH="/a"' in text
    assert "s3cr3t" not in text
    assert record.stat().st_mode & 0o077 == 0


def test_cores(world: World) -> None:
    """Each rank has cores of its own; srun binds by itself."""
    work = ["bash", "-c", "sed -n 's/^Cpus_allowed_list://p' /proc/self/status"]
    case = world.plan("local", launcher="mpirun", command=work, bind="cores", procs_per_node=1)
    run = world.run(case)
    assert run.code == 0, run.log
    assert "--cpu-bind=cores" in render(plan("lab", launcher="srun", command=["a"], bind="cores"))
    own = profile("lab", launcher={"srun_args": ["--cpu-bind=map_cpu:0,1"]})
    assert "--cpu-bind=cores" not in render(plan(own, launcher="srun", command=["a"], bind="cores"))
