"""The first day on a real Slurm with real modules: shells in a terminal, the check of a profile, the set-up script."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.cluster.testbed import Testbed
from tests.cluster.testbed.modules import init_script
from tests.cluster.user import BIN, PROFILE, User
from tests.hpcjob.terminal import type_into

pytestmark = pytest.mark.cluster


def session(user: User, arguments: list[str], lines: list[str], profile: str = PROFILE) -> tuple[int, str]:
    """Type ``lines`` into the shell that the user starts on the login host; its exit code and what was shown."""
    argv = [str(BIN / "hpcjob"), "interactive", *arguments, "-p", profile]
    login = user.bed.login
    environment = {**login.environment, **user.environment}
    return type_into(login.command(argv, user.folder), lines, env=environment)


def queued(bed: Testbed) -> list[str]:
    """The ids of the jobs that wait or run; an ended one stays in the list, completing, until its nodes are cleaned."""
    return bed.login.run("squeue", "-h", "-t", "pending,configuring,running,suspended", "-o", "%i").stdout.split()


def test_two_nodes(user: User, bed: Testbed) -> None:
    """salloc gives both nodes; modules, files and variables are a job's; `launch` starts ranks on both by srun."""
    bed.modules.add("tool/1.0", programs={"tool": {"--version": "tool 1.0\n"}})
    profile = user.write_profile(
        {"modules": {"init": init_script(), "use": [str(bed.modules.files)], "load": ["tool/1.0"]}}
    )
    (user.folder / "mine.sh").write_text("export MINE=sourced\n")
    job = user.write_job(
        "shape",
        nodes=2,
        procs_per_node=2,
        extra=["--gpus-per-node=2"],
        source=["mine.sh"],
        env={"GREETING": "it's"},
        command=["bash", "-c", "echo work $RANK"],
    )
    ask = "bash -c 'echo \"r $RANK of $WORLD_SIZE on $(uname -n) $GREETING $CUDA_VISIBLE_DEVICES\"'"
    lines = [
        'uname -n; tool --version; echo "<$MINE $GREETING>" "gpus $CUDA_VISIBLE_DEVICES"; module list 2>&1 | tail -1',
        f'launch {ask}; launch; launch false; echo "code $?"',
        "exit 4",
    ]
    code, shown = session(user, [str(job)], lines, profile)
    assert code == 4, shown
    for line in ("node1", "tool 1.0", "<sourced it's> gpus 0,1", "code 1", "work 0"):
        assert f"{line}\n" in shown, shown
    assert re.search(r"tool/1\.0", shown)
    assert "r 0 of 4 on node1 it's 0,1\n" in shown
    folder = next((user.folder / "outputs" / "shape").iterdir())
    logs = "".join(path.read_text() for path in folder.glob("*_log.out"))
    assert sorted(re.findall(r"r (\d) of 4 on (node\d)", logs)) == [
        ("0", "node1"),
        ("1", "node1"),
        ("2", "node2"),
        ("3", "node2"),
    ]
    assert not queued(bed)


@pytest.mark.parametrize("launcher", ["mpirun", pytest.param("pdsh", marks=pytest.mark.full)])
def test_other_launchers(user: User, launcher: str) -> None:
    """Inside the step that is the shell, Open MPI and pdsh reach both nodes too."""
    ask = "launch bash -c 'echo rank $RANK on $(uname -n) >seen.$RANK'; cat seen.*"
    code, shown = session(user, ["-n", "2", "--launcher", launcher], [ask, "exit"])
    assert code == 0, shown
    assert re.findall(r"rank (\d) on (node\d)\n", shown)[-2:] == [("0", "node1"), ("1", "node2")]


def test_check_of_the_profile(user: User, bed: Testbed) -> None:
    """What the real commands say of the bed, and the profile written, by which `queue: auto` finds a partition."""
    bed.modules.add("tool/1.0")
    bed.modules.add("other/2.0")
    modules = {"init": init_script(), "use": [str(bed.modules.files)], "load": ["tool/1.0", "other/1.0"]}
    name = user.write_profile({"modules": modules, "node": {"gpus": 8}, "limits": {"array": 500}})
    before = queued(bed)
    done = user.run(BIN / "hpcjob", "profile", "check", "-p", name, "--json", check=False)
    rows = {row["what"]: row for row in json.loads(done.stdout)["rows"]}
    assert done.returncode == 64
    assert rows["scheduler"]["here"].startswith("slurm-wlm ")
    assert (rows["limits.array"]["here"], rows["limits.array"]["verdict"]) == ("1001", "differs")
    assert "debug" in rows["other queues"]["here"].split(", ")
    assert rows["module tool/1.0"]["verdict"] == "same"
    assert rows["module other/1.0"]["todo"].endswith("near: other/2.0")
    assert {rows[what]["verdict"] for what in ("sbatch", "srun", "mpirun", "ssh", "pdsh")} == {"same"}
    written = user.folder / "found.yml"
    user.run(BIN / "hpcjob", "profile", "check", "-p", name, "--write", written, check=False)
    text = written.read_text()
    assert re.search(
        r"scheduler: \{resource: debug\} # the default one: scontrol show partition; sinfo, \d{4}-\d\d-\d\d\n", text
    )
    assert "{sizes: [{nodes: 2, walltime: '24:00:00'}], node: {gpus: 8" in text
    script = user.hpcjob("render", "-p", written, "-n", "2", "-q", "auto", "-t", "23h")
    assert "#SBATCH --partition=" in script
    assert queued(bed) == before


def test_environment_with_real_modules(user: User, bed: Testbed) -> None:
    """The set-up script with environment modules as they are: a module's Python makes a real virtual environment."""
    bed.modules.add("python/3.99")
    home = bed.modules.home("python/3.99") / "bin"
    real = sys.executable
    (home / "python3").write_text(
        "#!/bin/sh\n"
        f'case "$*" in "-m venv "*) {real} -m venv --without-pip "$3" && mv "$3/bin/python" "$3/bin/real"\n'
        '    cp "$0" "$3/bin/python" ;;\n'
        '  "-m pip "*|*"import deepspeed"*) echo "asked: $*" ;;\n'
        f'  *) exec {real} "$@" ;; esac\n'
    )
    (home / "python3").chmod(0o755)
    modules = {"init": init_script(), "use": [str(bed.modules.files)], "load": ["python/3.99"]}
    name = user.write_profile({"modules": modules})
    venv = user.folder / "venv"
    done = user.run(BIN / "hpcjob", "env", "create", "-p", name, "--dest", venv, "--run")
    assert "hpcjob: modules python/3.99\n" in done.stdout
    assert (
        "asked: -m pip install --no-input --disable-pip-version-check torch>=2.6 --index-url https://download.pytorch.org/whl/cpu"
        in done.stdout
    )
    assert done.stdout.endswith(f"python: {{venv: {venv}}}\n")
    assert (venv / "bin" / "real").exists()
    again = user.run(BIN / "hpcjob", "env", "create", "-p", name, "--dest", venv, "--run")
    assert again.stdout.count("was done") == 6
