"""Rendered scripts run under bash with stub launchers: what arrives in the ranks, what is checked, how a job ends."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from hpcjob.errors import InputError
from hpcjob.render import render
from tests.hpcjob.render import golden
from tests.hpcjob.render.plans import pairs, plan
from tests.hpcjob.render.world import GPUS, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A cluster of stubs, whose submit folder has blanks, quotes and Japanese in its name."""
    return World(tmp_path, "it's 100% 学習 $HOME")


@pytest.mark.parametrize(("name", "launcher"), pairs())
def test_every_rank_gets_command_environment_and_place(world: World, name: str, launcher: str) -> None:
    """Under every launcher, on every scheduler: one rank a GPU, numbered, with the same environment and folder."""
    asked = world.plan(name, launcher=launcher, env={"ANSWER": "4 2"}, procs_per_node=GPUS)
    run = world.run(asked)
    assert run.code == 0, run.log
    ranks = run.arrived()
    assert [rank.env["RANK"] for rank in ranks] == [str(index) for index in range(asked.world_size)]
    assert [rank.env["LOCAL_RANK"] for rank in ranks] == [str(index % GPUS) for index in range(asked.world_size)]
    for rank in ranks:
        env = rank.env
        assert env["WORLD_SIZE"] == str(asked.world_size)
        assert env["ANSWER"] == "4 2"
        assert env["NEOXLITE_STOP_FILE"] == str(run.jobdir / "stop")
        assert env["MASTER_ADDR"] == ("127.0.0.1" if asked.nodes == 1 else "node1")
        assert rank.cwd == str(world.submit_dir)
        assert rank.argv == ["job.py"]
        if asked.modules:
            assert env["LOADEDMODULES"] == ":".join(asked.modules)
            assert env["MODULE_MADE_THIS"] == f"it's {asked.modules[-1]}"
    assert len({rank.env["MASTER_PORT"] for rank in ranks}) == 1


def test_files_of_a_job_directory(world: World) -> None:
    """Logs by rank under submitit's names, rank 0 in the job's log too, hostfile, private environment, exit record."""
    run = world.run(world.plan("abci3", launcher="mpirun"))
    assert run.jobdir.parent == world.submit_dir / "outputs" / "gpt-2.7B"
    assert run.jobdir.stat().st_mode & 0o777 == 0o700
    assert (run.jobdir / "env.sh").stat().st_mode & 0o777 == 0o600
    assert (run.jobdir / "hostfile").read_text() == "node1 slots=2\nnode2 slots=2\n"
    for rank in range(4):
        assert (run.jobdir / f"77.pbs1_{rank}_log.out").read_text() == f"rank {rank} speaks\n"
    assert run.log.count("speaks") == 1
    assert "rank 0 speaks" in run.log
    record = run.record
    assert (record["code"], record["signal"], record["step"]) == (0, None, "command")
    assert set(record) == {"code", "signal", "time", "host", "step"}
    assert run.said.count("\n") == 1


def test_port_follows_the_job_id(world: World) -> None:
    """Two jobs on one node have ports of their own, from the profile's base on."""
    (rank, *_) = world.run(world.plan("lab", launcher="srun")).arrived()
    assert int(rank.env["MASTER_PORT"]) in range(20_077, 20_090)


def test_job_folder_of_submit(world: World) -> None:
    """With a given folder nothing else is made, and what an earlier start left does not stop this one."""
    jobdir = world.folder / "job dir's"
    jobdir.mkdir()
    for name in ("stop", "abort", "77_exit.json"):
        (jobdir / name).write_text("request\n")
    run = world.run(world.plan("lab"), jobdir=jobdir)
    assert run.code == 0, run.log
    assert not (world.submit_dir / "outputs").exists()
    assert not (jobdir / "abort").exists()


def test_job_folder_that_is_gone(world: World) -> None:
    """A job folder that was removed before the start is said on the scheduler's output."""
    run = world.run(world.plan("lab"), jobdir=world.folder / "gone")
    assert run.code == 87
    assert "hpcjob: check: no job folder" in run.said


@pytest.mark.parametrize(
    ("module", "words"),
    [("missing/1.0", "Unable to locate a modulefile for 'missing/1.0'"), ("silent/1.0", "silent: not found")],
)
def test_missing_module_ends_the_job_with_one_line(world: World, module: str, words: str) -> None:
    """Whether the module system returns 1 or 0: one line with its own words, code 87, nothing is started."""
    run = world.run(world.plan("abci3", modules=["good/1.0", module, "never/1.0"]))
    assert run.code == 87
    assert run.log.split("\n")[-2] == f"hpcjob: check: module {module} did not load: {words} "
    assert "never" not in run.log
    assert run.record["code"] == 87
    assert run.arrived() == []


def test_module_system_that_is_not_there(world: World) -> None:
    """No init file, no command, no MODULEPATH: each is named."""
    gone = {"modules": {"init": "/nowhere/init.sh"}}
    assert "check: modules: cannot read /nowhere/init.sh" in world.run(world.plan("abci3", settings=gone)).log
    none = {"modules": {"init": "/dev/null"}}
    assert "check: modules: there is no command module" in world.run(world.plan("abci3", settings=none)).log
    world.modules_init.write_text("module() { :; }\nunset MODULEPATH\n")
    run = world.run(world.plan("abci3"))
    assert run.code == 87
    assert "check: modules: MODULEPATH is empty" in run.log


def test_wrong_number_of_nodes(world: World) -> None:
    """The scheduler gave another number of nodes than asked: the job ends before the launch, and says which."""
    run = world.run(world.plan("abci3", nodes=3))
    assert run.code == 87
    assert "hpcjob: check: nodes: 3 requested, but 2 given (node1,node2)" in run.log


@pytest.mark.parametrize("gpus", ["1", "3", "0"])
def test_wrong_number_of_gpus(world: World, gpus: str) -> None:
    """A GPU that fell off the bus, or one too many, ends the job before the launch."""
    run = world.run(world.plan("abci3"), env={"STUB_GPUS": gpus})
    assert run.code == 87
    assert f"GPUs: 2 requested, but it has {gpus}" in run.log


def test_wrong_number_of_gpus_on_another_node(world: World) -> None:
    """Each node counts before its first rank starts; one that lacks a GPU ends the job on all nodes."""
    (world.bin / "nvidia-smi").write_text(
        "#!/bin/bash\nfor ((i = 0; i < (${RANK-0} < 2 ? 2 : 1); i++)); do echo 'GPU 0: NVIDIA H200'; done\n"
    )
    run = world.run(world.plan("lab", launcher="torchrun", env={"WORK": "sleep 600"}))
    assert run.code == 87
    assert "GPUs: 2 requested, but it has 1" in run.log


def test_first_node_without_an_address(world: World) -> None:
    """Ranks would wait for a name that leads nowhere until the walltime."""
    run = world.run(world.plan("abci3"), env={"STUB_HOSTS": "elsewhere"})
    assert run.code == 87
    assert "check: nodes: node1 has no address here" in run.log


def test_gpus_that_are_masked_are_not_counted(world: World) -> None:
    """On a node shared with others the scheduler's mask says which GPUs are the job's."""
    mask = {"STUB_GPUS": "8", "CUDA_VISIBLE_DEVICES": "4,7"}
    assert world.run(world.plan("lab"), env=mask).code == 0
    assert world.run(world.plan("lab"), env={**mask, "CUDA_VISIBLE_DEVICES": "4"}).code == 87


def test_no_nvidia_smi(world: World) -> None:
    """GPUs are asked for, and the node has no driver."""
    (world.bin / "nvidia-smi").unlink()
    run = world.run(world.plan("lab"))
    assert run.code == 87
    assert "GPUs: 2 requested, but it has no nvidia-smi" in run.log


def test_missing_launcher(world: World) -> None:
    """A launcher that is not on PATH is named before anything starts."""
    asked = world.plan("lab", launcher="mpirun", settings={"launcher": {"mpirun": "/opt/mpi/bin/mpirun"}})
    run = world.run(asked)
    assert run.code == 87
    assert "check: launcher: there is no /opt/mpi/bin/mpirun" in run.log


def test_wrong_world_size_ends_all(world: World) -> None:
    """A launcher that starts fewer ranks than asked does not train on fewer: code 87 and one line."""
    (world.bin / "srun").write_text(
        '#!/bin/bash\nwhile [[ $1 != bash ]]; do shift; done\nSLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 exec "$@"\n'
    )
    run = world.run(world.plan("lab", launcher="srun"))
    assert run.code == 87
    assert "srun started rank 0 of 1, but 4 ranks were requested" in run.log
    assert run.arrived() == []


def test_source_files_and_their_failure(world: World) -> None:
    """Files are sourced after the modules, their variables reach all ranks; one that fails ends the job."""
    (world.submit_dir / "my env.sh").write_text('export TOKEN_OF_MINE="$UNSET secret"\n')
    run = world.run(world.plan("abci3", source=["my env.sh"], launcher="pdsh"))
    assert [rank.env["TOKEN_OF_MINE"] for rank in run.arrived()] == [" secret"] * 4
    (world.submit_dir / "bad.sh").write_text("return 3\n")
    assert "check: source: bad.sh ended with code 3" in world.run(world.plan("lab", source=["bad.sh"])).log
    assert "check: source: cannot read none.sh" in world.run(world.plan("lab", source=["none.sh"])).log


def test_python_that_is_not_there(world: World) -> None:
    """Each kind of Python environment is checked before the launch, in words that name it."""
    for python, words in (
        ({"executable": "/opt/none/python"}, "python.executable: there is no /opt/none/python"),
        ({"venv": "no venv"}, "python.venv: there is no virtual environment in no venv"),
        ({"conda": "mine"}, "python.conda: there is no command conda"),
    ):
        run = world.run(world.plan("lab", python=python))
        assert run.code == 87
        assert f"hpcjob: check: {words}" in run.log


def test_missing_packages(world: World) -> None:
    """A training run needs neoxlite, deepspeed and torch: those that are missing are named."""
    (world.bin / "python").write_text('#!/bin/bash\n[[ $1 != -c ]] || echo "deepspeed torch"\n')
    run = world.run(world.plan("lab", train={"configs": ["a.yml"]}))
    assert run.code == 87
    assert "python has no package deepspeed torch (pip install" in run.log


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({}, 0),
        ({"launcher": "mpirun", "procs_per_node": 2}, 0),
        ({"launcher": "torchrun"}, 87),
        ({"procs_per_node": 2}, 87),
    ],
)
def test_torch_is_needed_for_several_processes_only(world: World, job: dict[str, Any], code: int) -> None:
    """One process of a command on this machine is started directly; where torchrun is used, it says what needs none."""
    (world.bin / "python").write_text('#!/bin/bash\n[[ $1 != -c ]] || echo "torch"\n')
    work = ["bash", "-c", 'echo "$RANK $LOCAL_RANK of $WORLD_SIZE at $MASTER_ADDR"']
    run = world.run(world.plan("local", command=work, **job))
    assert run.code == code, run.log
    if code:
        assert "has no package torch" in run.log
        assert "launcher: mpirun or srun, or a command under steps, needs none" in run.log
    elif not job:
        assert "0 0 of 1 at 127.0.0.1\n" in run.log
        assert run.record["code"] == 0
        assert "command (directly)" in run.log


def test_venv_is_activated_for_the_ranks(world: World) -> None:
    """A virtual environment, relative to the submit folder: its variables and PATH reach every rank."""
    binary = world.submit_dir / "venv" / "bin"
    binary.mkdir(parents=True)
    (binary / "python").symlink_to(world.bin / "python")
    (binary / "activate").write_text(
        f"export VIRTUAL_ENV='{str(binary.parent).replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'\n"
        'PATH=$VIRTUAL_ENV/bin:$PATH; : "$_UNSET"\n'
    )
    run = world.run(world.plan("lab", python={"venv": "venv"}, launcher="pdsh"))
    assert run.code == 0, run.log
    for rank in run.arrived():
        assert rank.env["VIRTUAL_ENV"] == str(binary.parent)
        assert rank.env["PATH"].startswith(f"{binary}:")


def test_conda_is_activated_by_its_hook(world: World) -> None:
    """``conda activate`` needs the shell function that the hook defines; an environment that is not there is named."""
    (world.bin / "conda").write_text(
        "#!/bin/sh\n"
        "echo 'conda() { [ \"$2\" != none ] && export CONDA_DEFAULT_ENV=$2; }'\n"
    )  # fmt: skip
    (world.bin / "conda").chmod(0o755)
    run = world.run(world.plan("lab", python={"conda": "my env"}))
    assert [rank.env["CONDA_DEFAULT_ENV"] for rank in run.arrived()] == ["my env"] * 4
    run = world.run(world.plan("lab", python={"conda": "none"}))
    assert run.code == 87
    assert "python.conda: none could not be activated" in run.log


def test_steps_run_in_order_with_environments_of_their_own(world: World) -> None:
    """Commands run once, training on all ranks; a step's variables are its own; the first failure ends the job."""
    steps = [
        {"name": "prepare", "command": ["python", "job.py", "a b"], "env": {"STEP": "1", "ONLY": "here"}},
        {"name": "train", "train": {"configs": ["x.yml"]}, "env": {"STEP": "2"}},
        {"name": '最後 "q"', "command": ["python", "job.py"], "env": {"STEP": "3", "WORK": "exit 5"}},
        {"name": "never", "command": ["python", "job.py"], "env": {"STEP": "4"}},
    ]
    run = world.run(world.plan("lab", steps=steps, launcher="torchrun"))
    assert run.code == 5
    (first,) = run.arrived("1")
    assert first.argv == ["job.py", "a b"]
    assert "RANK" not in first.env, "a command that runs once is not told that it is a rank"
    second = run.arrived("2")
    assert len(second) == 4
    assert second[0].argv == ["-m", "neoxlite", "train", "--", "x.yml"]
    assert not any("ONLY" in rank.env for rank in second)
    assert len(run.arrived("3")) == 1
    assert run.arrived("4") == []
    assert (run.record["code"], run.record["step"]) == (5, '最後 "q"')


@pytest.mark.parametrize(
    ("outcome", "code", "launcher"),
    [
        ("completed", 0, "srun"),
        ("saved_for_walltime", 85, "torchrun"),
        ("stopped", 86, "srun"),
        ("failed", 1, "srun"),
        ("?", 1, "srun"),
    ],
)
def test_outcome_of_the_trainer_decides(world: World, outcome: str, code: int, launcher: str) -> None:
    """Launchers turn every code into another: what the trainer wrote is the job's code."""
    text = json.dumps({"outcome": outcome, "iteration": 3, "checkpoint": None, "message": '"outcome":"completed"'})
    work = f'((RANK)) || echo {shlex.quote(text)} >"$NEOXLITE_OUTCOME_FILE"; exit {9 * bool(code)}'
    run = world.run(world.plan("lab", train={"configs": ["x.yml"]}, launcher=launcher, env={"WORK": work}))
    assert run.code == code, run.log
    assert run.record["code"] == code


def test_code_of_a_command_is_the_launchers(world: World) -> None:
    """A command leaves no outcome: the launcher's code is passed on."""
    run = world.run(world.plan("lab", launcher="srun", env={"WORK": "exit 7"}))
    assert run.code == 7


def test_secrets_and_reserved_names_are_refused() -> None:
    """A secret would stand in the script; a variable that the script sets would not arrive."""
    refused = dict.fromkeys(("HF_TOKEN", "WANDB_API_KEY", "GITHUB_PAT", "AWS_SECRET_KEY"), "secret")
    for name, words in {**refused, "RANK": "set by", "UID": "set by"}.items():
        with pytest.raises(InputError, match=rf"^env.{name}: .*{words}"):
            render(plan("lab", env={name: "x"}))
    assert "TOKENIZERS_PARALLELISM=false" in render(plan("lab", env={"TOKENIZERS_PARALLELISM": "false"}))


def test_scripts_own_variables_are_reserved() -> None:
    """Every variable that a script assigns is refused as a variable of the job, so none of these is lost."""
    from hpcjob.rendering.variables import is_reserved

    assigned: set[str] = set()
    for case in golden.cases().values():
        code = re.sub(r"<<'END_OF_CHECK'.*?END_OF_CHECK", "", render(case), flags=re.DOTALL)
        code = re.sub(r"^variables=\(.*?^\)|^argv=\(.*?^\)", "", code, flags=re.DOTALL | re.MULTILINE)
        code = re.sub(r"(^| )#.*|'[^'\n]*'", "", code, flags=re.MULTILINE)
        for line in code.split("\n"):
            if re.match(r" *(local |\(\(|if .*&& )?[a-z_]+\+?=", line):
                assigned |= set(re.findall(r"(?<![\w$./{-])([a-z_]+)\+?=", line))
        assigned |= set(re.findall(r"\b(?:for|mapfile -t|declare -A|IFS=, read -ra) ([a-z_]+)\b", code))
    assert {"jobdir", "python", "names", "code", "mask"} <= assigned, "the pattern still finds them"
    assert {name for name in assigned if not is_reserved(name)} == set()
