"""From a configuration and a hostfile to a launch line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from neoxlite.cli import main
from neoxlite.errors import ConfigError
from neoxlite.launch.settings import Request, launch_settings
from tests.neoxlite.launch.launching import NO_GPU, launch_line, printed

pytestmark = pytest.mark.usefixtures("place")


def test_one_node(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight ranks on this machine are started by one agent, without ssh, and know what has started them."""
    script = printed(capsys, "--set", "num_gpus=8", "--set", "train_iters=3")
    assert launch_line(script) == '\'"train"\' bash "$jobdir/node.sh" "$jobdir/step1.sh" 0'
    assert "launcher=torchrun " in script
    assert " nodes=1 procs_per_node=8 world_size=8\n" in script
    words = re.search(r"^argv=\(\n(.*?)^\)", script, re.MULTILINE | re.DOTALL)
    assert words
    assert words.group(1).split() == [
        *("python", "-m", "neoxlite", "train", "--launched", "-d", "configs"),
        *("--set", "num_gpus=8", "--set", "train_iters=3", "--", "run.yml"),
    ]


def test_two_nodes_by_pdsh(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    """pdsh reaches the hosts of the file, given by option, key or variable, in its order."""
    expected = '\'"train"\' pdsh -S -N -R ssh -f 2 -w "$hosts" bash "$(remote_word "$jobdir/node.sh")" '
    (place / "configs/key.yml").write_text("hostfile: hosts\n")
    for arguments in (["--hostfile", "hosts"], ["key.yml"], ["--set", "hostfile=hosts"]):
        script = printed(capsys, *arguments)
        assert launch_line(script).startswith(expected)
        assert "names=(node1 node2)" in script
        assert "launcher=pdsh " in script
        assert " nodes=2 procs_per_node=8 world_size=16\n" in script
        assert "export MASTER_ADDR=${hosts%%,*}" in script


def test_two_nodes_by_mpirun(capsys: pytest.CaptureFixture[str]) -> None:
    """launcher: openmpi starts a process for each slot."""
    script = printed(capsys, "--hostfile", "hosts", "--set", "launcher=openmpi", "--set", "num_gpus=2")
    line = launch_line(script)
    assert line.startswith(
        '\'"train"\' "$mpirun" -np 4 --hostfile "$jobdir/hostfile" --map-by ppr:2:node:OVERSUBSCRIBE'
    )
    assert line.endswith('bash "$jobdir/rank.sh" "$jobdir/step1.sh"')


def test_keys_of_launching(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    """include, num_gpus, master_addr and master_port do what they say."""
    (place / "hosts").write_text("".join(f"node{number} slots=8\n" for number in range(1, 5)))
    keys = {"include": "node2@node4", "num_gpus": 4, "master_addr": "10.0.0.2", "master_port": 12345}
    (place / "configs/where.yml").write_text(yaml.safe_dump({**keys, "hostfile": "hosts"}))
    script = printed(capsys, "where.yml")
    assert "names=(node2 node4)" in script
    assert "procs_per_node=4 world_size=8" in script
    assert "export MASTER_ADDR=10.0.0.2\n" in script
    assert "export MASTER_PORT=12345\n" in script


def test_scripts_are_sound(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    """bash accepts the script, also with names that a shell would read."""
    (place / "configs/a b$(touch x)'.yml").write_text("log_interval: 1\n")
    script = printed(capsys, "a b$(touch x)'.yml", "--hostfile", "hosts")
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--print" not in script


def test_variables_for_all_hosts(place: Path) -> None:
    """DeepSpeed's prefixes and .deepspeed_env reach the ranks; this machine's GPU mask does not go to others."""
    (place / ".deepspeed_env").write_text("# ours\nUCX_TLS=rc\n\nMY_FLAG=a b=c\n")
    environ = {
        **NO_GPU,
        "HOME": str(place),
        "NCCL_DEBUG": "INFO",
        "PYTHONPATH": "/src",
        "UNRELATED": "1",
        "NCCL_IB_HCA": "mlx5",
    }
    settings = launch_settings(Request("train", ["configs/run.yml"], hostfile="hosts"), environ)
    ours = {"NCCL_DEBUG": "INFO", "PYTHONPATH": "/src", "NCCL_IB_HCA": "mlx5"}
    assert settings.env == {**ours, "UCX_TLS": "rc", "MY_FLAG": "a b=c"}
    (place / ".deepspeed_env").write_text("fine=1\n1abc=2\n")
    with pytest.raises(ConfigError, match=r"\.deepspeed_env:2: '1abc=2' is not a variable"):
        launch_settings(Request("train", ["configs/run.yml"]), environ)


def test_secrets_are_not_in_the_script(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the variables that would go to all hosts, those that hold a password stay here."""
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "xyzzy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow")
    script = printed(capsys, "--hostfile", "hosts")
    assert "MLFLOW_TRACKING_URI=http://mlflow" in script
    assert "xyzzy" not in script


def test_without_hpcjob(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer knows hpcjob in launching alone, which says what is missing, and what to do without it."""
    monkeypatch.setitem(sys.modules, "hpcjob.render", None)
    assert main(["launch", "--print", "-d", "configs", "run.yml"]) == 1
    error = capsys.readouterr().err
    assert "launching needs hpcjob" in error
    assert "torchrun --nproc-per-node N -m neoxlite train" in error


def test_nothing_else_imports_hpcjob() -> None:
    """Reading a request, and training, load nothing of it."""
    modules = "neoxlite.launch.settings, neoxlite.launch.script, neoxlite.launch.run, neoxlite.cli.train"
    code = f"import sys, {modules}; print([name for name in sys.modules if name.startswith('hpcjob')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "[]"
