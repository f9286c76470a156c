"""GPT-NeoX's way to start a run, on real hosts: two scripts as its users have them, with the trainer exchanged."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.need import need
from tests.cluster.testbed.bed import REPOSITORY
from tests.cluster.testbed.hosts import namespaces_of
from tests.cluster.testbed.processes import PATIENCE_S, oldest, processes_in, wait_until
from tests.cluster.training import ITERATIONS, Training
from tests.cluster.user import BIN, User

pytestmark = pytest.mark.cluster

ONE_NODE = """#!/bin/bash
python ./deepy.py train.py -d configs tiny.yml one_node.yml
"""
TWO_NODES = """#!/bin/bash
for host in node1 node2; do
  echo "$host slots=2"
done >hostfile
python ./deepy.py train.py -d configs tiny.yml two_nodes.yml
"""
_LOSS = re.compile(r"iteration +(\d+)/.*\| lm_loss: (\S+) ")
_RANK = "-m neoxlite train"


@pytest.fixture
def neox(bed: object, training: Training, request: pytest.FixtureRequest) -> Iterator[User]:
    """A user in a folder as a clone of GPT-NeoX has it: deepy.py, configs/ and the scripts."""
    user = User(bed, bed.work / request.node.name)  # type: ignore[attr-defined, arg-type]
    user.environment["PATH"] = f"{BIN}:/usr/bin:/bin"
    shutil.copy(REPOSITORY / "deepy.py", user.folder)
    configs = user.folder / "configs"
    configs.mkdir()
    shutil.copy(training.config, configs / "tiny.yml")
    (configs / "one_node.yml").write_text("num_gpus: 2\n")
    (configs / "two_nodes.yml").write_text("{hostfile: hostfile, launcher: pdsh}\n")
    for name, text in (("one_node.sh", ONE_NODE), ("two_nodes.sh", TWO_NODES)):
        (user.folder / name).write_text(text)
    yield user
    for pid in ranks(user):
        subprocess.run(["kill", "-KILL", str(pid)], check=False)


def ranks(user: User) -> list[int]:
    """Processes of a run of this user, on all hosts."""
    hosts = user.bed.hosts.by_name.values()
    found = processes_in(namespaces_of(hosts)).items()
    return [pid for pid, command in found if str(user.folder) in command or _RANK in command]


def losses(log: str) -> dict[int, float]:
    """Loss of each iteration in a log."""
    return {int(iteration): float(loss) for iteration, loss in _LOSS.findall(log)}


def endless(user: User, **keys: object) -> Path:
    """Let the two-node run last until it is ended, and return the file of its output."""
    settings = yaml.safe_load((user.folder / "configs/tiny.yml").read_text())
    settings.update(train_iters=1_000_000, lr_decay_iters=1_000_000, **keys)
    (user.folder / "configs/tiny.yml").write_text(yaml.safe_dump(settings))
    return user.folder / "output"


def test_both_scripts_train(neox: User) -> None:
    """Two ranks of one host and four of two, by pdsh and a hostfile, give one loss curve."""
    curves = []
    for script in ("one_node.sh", "two_nodes.sh"):
        log = neox.run("bash", script).stdout
        curves.append(losses(log))
        assert sorted(curves[-1]) == list(range(1, ITERATIONS + 1)), log
    assert "hostfile hostfile: 2 hosts (node1, node2), 2 processes each, 4 in all, by pdsh" in log
    assert curves[0][ITERATIONS] < curves[0][1] - 1
    assert curves[1] == pytest.approx(curves[0], abs=1e-5, rel=0)
    wait_until(lambda: ranks(neox) == [], PATIENCE_S, "processes are left")


def test_the_death_of_a_rank_ends_all(neox: User) -> None:
    """SIGKILL to a rank of the second host: the run ends with a failure, and no process is left on any host."""
    (neox.folder / "two_nodes.sh").write_text(TWO_NODES.replace("slots=2", "slots=1"))
    output = endless(neox)
    process = neox.start("bash", "two_nodes.sh", output=output)
    try:
        wait_until(lambda: len(losses(output.read_text())) > 2, 180, "waited for iterations")
        second = processes_in(namespaces_of([neox.bed.nodes[1]]))
        victim = next(pid for pid, command in second.items() if command.split()[1:4] == _RANK.split())
        subprocess.run(["kill", "-KILL", str(victim)], check=True)
        assert process.wait(PATIENCE_S) == 1 or process.returncode == 137, output.read_text()
        wait_until(lambda: ranks(neox) == [], PATIENCE_S, "processes are left")
    finally:
        process.kill()
        process.wait()
    assert "(SIGKILL)" in output.read_text()  # torchrun's report names the rank, its host and the signal


def test_ctrl_c_saves_and_ends_with_its_code(neox: User) -> None:
    """The first SIGINT asks for a checkpoint; the code says that the run was stopped on request."""
    (neox.folder / "configs/one_node.yml").write_text("num_gpus: 1\n")
    output = endless(neox, save=str(neox.folder / "checkpoints"))
    process = neox.start("python", "deepy.py", "train.py", "-d", "configs", "tiny.yml", "one_node.yml", output=output)
    try:
        wait_until(lambda: len(losses(output.read_text())) > 2, 180, "waited for iterations")
        here = processes_in(namespaces_of([neox.bed.login])).items()
        launcher = oldest(pid for pid, command in here if "deepy.py" in command)
        subprocess.run(["kill", f"-{signal.SIGINT.value}", str(launcher)], check=True)
        assert process.wait(PATIENCE_S) == 86, output.read_text()
    finally:
        process.kill()
        process.wait()
    assert (neox.folder / "checkpoints/latest").read_text().startswith("global_step")
    wait_until(lambda: ranks(neox) == [], PATIENCE_S, "processes are left")


def test_a_folder_that_is_not_shared_is_told_at_once(neox: User) -> None:
    """Each host has a /tmp of its own: the run would wait there for the second host."""
    start = "cp -r deepy.py configs two_nodes.sh /tmp && cd /tmp && bash two_nodes.sh"
    done = neox.run("bash", "-c", start, check=False)
    assert done.returncode == 1
    assert "node1, node2: there is no /tmp/outputs/launch/" in done.stderr
    assert "start from a folder that all hosts share" in done.stderr


def test_ranks_agree_by_mpi_where_no_address_is_given(tmp_path: Path) -> None:
    """By real MPI, which they then leave: a mistake that all of them find ends the run with its code."""
    need([] if shutil.which("mpirun") else ["mpirun"], "Open MPI")
    (tmp_path / "run.yml").write_text("train_iters: 1\n")
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable, "-m", "neoxlite", "train"]
    done = subprocess.run(
        [*words, "run.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 2
    assert "neoxlite: run.yml: num_layers is not given" in done.stderr
