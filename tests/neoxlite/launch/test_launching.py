"""From a configuration and a hostfile to a launch line, and the run of a script: codes, signals, log."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from forked_worlds import write_dataset

from neoxlite.cli import main
from neoxlite.errors import ConfigError
from neoxlite.launch.ending import tell_why
from neoxlite.launch.settings import Request, launch_settings

KEYS: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "seq_length": 32,
    "max_position_embeddings": 32,
    "train_micro_batch_size_per_gpu": 1,
    "train_iters": 3,
    "data_path": "data/文書_text_document",
}
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HOME": "/nonexistent"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test works in an empty folder with one configuration, without GPUs and variables of a launcher."""
    launchers = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "DLTS_HOSTFILE", "MASTER_ADDR", "DS_ENV_FILE")
    schedulers = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "NHOSTS", "PBS_NODEFILE", "PE_HOSTFILE", "PJM_O_NODEINF")
    for name in (*launchers, *schedulers):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/run.yml").write_text(yaml.safe_dump(KEYS))
    (tmp_path / "hosts").write_text("node1 slots=8\nnode2 slots=8\n")
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the script of ``neoxlite launch`` for the configuration."""
    code = main(["launch", "--print", "-d", "configs", "run.yml", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def launch_line(script: str) -> str:
    """Return the words behind ``run_step``, on one line."""
    _, _, words = script.rpartition("\nrun_step ")
    return re.sub(r"\s*\\\n\s*", " ", words).strip()


def test_one_node(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight ranks on this machine are started by one agent, without ssh."""
    script = printed(capsys, "--set", "num_gpus=8", "--set", "train_iters=3")
    assert launch_line(script) == '\'"train"\' bash "$jobdir/node.sh" "$jobdir/step1.sh" 0'
    assert "launcher=torchrun " in script
    assert " nodes=1 procs_per_node=8 world_size=8\n" in script
    words = re.search(r"^argv=\(\n(.*?)^\)", script, re.MULTILINE | re.DOTALL)
    assert words
    assert words.group(1).split() == [
        *("python", "-m", "neoxlite", "train", "-d", "configs", "--set", "train_iters=3", "--", "run.yml")
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


def test_a_hostfile_that_does_not_exist_is_this_machine_with_a_note(
    capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for DeepSpeed (launcher/runner.py): GPT-NeoX's own configs/125M.yml has the key with this value."""
    (place / "configs/mock.yml").write_text('"hostfile": "/mock_path"\n')
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    assert main(["launch", "--print", "-d", "configs", "run.yml", "mock.yml"]) == 0
    captured = capsys.readouterr()
    assert " nodes=1 procs_per_node=1 world_size=1\n" in captured.out
    assert captured.err == "note: hostfile /mock_path does not exist: this machine alone\n"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("SLURM_JOB_NUM_NODES", "4", "SLURM_JOB_NUM_NODES is 4"),
        ("NHOSTS", "2", "NHOSTS is 2"),
        ("PBS_NODEFILE", "node1\nnode1\nnode2\n", "PBS_NODEFILE has 2 hosts"),
        ("PE_HOSTFILE", "node1 8 q@node1 <NULL>\nnode2 8 q@node2 <NULL>\n", "PE_HOSTFILE has 2 hosts"),
        ("PJM_O_NODEINF", "node1\nnode2\n", "PJM_O_NODEINF has 2 hosts"),
        ("PBS_NODEFILE", "/nonexistent/nodes", "cannot be read: No such file"),
    ],
)
def test_in_a_job_of_several_nodes_a_missing_hostfile_is_an_error(
    variable: str, value: str, told: str, place: Path
) -> None:
    """All nodes but one would idle behind a note; of a job that cannot be counted nobody knows. One node may."""
    nodes = place / "nodes"
    if "\n" in value:
        nodes.write_text(value)
        value = str(nodes)
    request, environ = Request("train", ["configs/run.yml"]), {**NO_GPU, "DLTS_HOSTFILE": "/mock_path"}
    with pytest.raises(ConfigError, match=told) as caught:
        launch_settings(request, {**environ, variable: value})
    assert "hostfile /mock_path does not exist" in caught.value.message
    without = launch_settings(request, {**NO_GPU, variable: value})
    assert told in (without.note or "")
    assert (without.note or "").endswith(", but no hostfile is given: this machine alone")
    nodes.write_text("node1\nnode1\n")
    assert launch_settings(request, {**environ, "PBS_NODEFILE": str(nodes)}).note


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
    with pytest.raises(ConfigError, match=r"\.deepspeed_env:2: '1abc=2' is no variable"):
        launch_settings(Request("train", ["configs/run.yml"]), environ)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--hostfile", "no"], "hostfile no cannot be read: No such file"),
        (["--set", "include=node1"], "include: node1 needs a hostfile"),
        (["--set", "num_nodes=2"], "num_nodes: 2 needs a hostfile"),
        (["--set", "hostfile=gone", "--set", "num_nodes=2"], "2 needs a hostfile; hostfile gone does not exist"),
        (["--set", "num_gpus=0"], "num_gpus is 0"),
        (["--set", "master_port=70000"], "master_port is 70000"),
        (["--hostfile", "hosts", "--set", "launcher=slurm"], "launcher: slurm is not started by neoxlite launch"),
        (["--hostfile", "hosts", "--set", "launcher=mvapich"], "launcher: mvapich"),
        (["--hostfile", "hosts", "--set", "num_nodes=3"], "num_nodes: 3 asked, there are 2 hosts"),
        (["--hostfile", "hosts", "--set", "include=node1"], "its one host node1 is not this machine"),
        (["--hostfile", "hosts", "--set", "pipe_parallel_size=3"], "16 GPUs cannot be shared out"),
        (["no.yml"], "no.yml"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    """Two lines, code 2, and no folder of a run."""
    assert main(["launch", "-d", "configs", "run.yml", *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not (place / "outputs").exists()


def test_secrets_are_not_in_the_script(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the variables that would go to all hosts, those that hold a password stay here."""
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "xyzzy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow")
    script = printed(capsys, "--hostfile", "hosts")
    assert "MLFLOW_TRACKING_URI=http://mlflow" in script
    assert "xyzzy" not in script


@pytest.mark.parametrize(
    ("variables", "waits"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, 0),
        ({"OMPI_COMM_WORLD_RANK": "1"}, 1),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, 0),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, 1),
    ],
)
def test_no_launch_inside_a_launch(variables: Mapping[str, str], waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """mpirun -np 8 neoxlite launch would start eight runs; one of the eight says so, the others wait for their end."""
    waited: list[float] = []
    monkeypatch.setattr("neoxlite.training.first_voice.time.sleep", waited.append)
    with pytest.raises(ConfigError, match="one rank of a run already"):
        launch_settings(Request("train", ["configs/run.yml"]), {**NO_GPU, **variables})
    assert waited == [2.0] * waits


RUNNER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from neoxlite.launch.run import make_run_folder, run_script
    folder = make_run_folder(Path("outputs"))
    sys.exit(run_script(sys.argv[1], folder))
""")
# As a job script does: one line on stdout, the rest into the log that carries its pid.
HEAD = 'echo "folder ${0%/*}"\nexec >"${0%/*}/$$_job.out" 2>&1\n'


def started(script: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", RUNNER, script], stdout=subprocess.PIPE, text=True, **more)


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 86", 86), ("kill -KILL $$", 137)])
def test_the_code_and_all_of_the_log_come_through(end: str, code: int) -> None:
    """The exit code is the script's, a death by a signal 128 and its number; the log is whole, to the last byte."""
    done = started(f"{HEAD}seq 1 20000\nprintf 'no newline'\n{end}")
    out, _ = done.communicate(timeout=240)
    assert done.returncode == code
    first, *lines = out.split("\n")
    assert first.startswith("folder ")
    assert lines == [*map(str, range(1, 20001)), "no newline"]


def test_a_failure_ends_with_its_cause() -> None:
    """What only rank 1 has found is told below torchrun's page, which names the signal that rank 0 was ended with."""
    script = textwrap.dedent("""
        printf 'neoxlite: data_path: 文書.idx is damaged\\n          Copy it again.\\n' >"${0%/*}/$$_1_log.out"
        cat <<PAGE
        neoxlite: rank 0 lost the other ranks: Connection closed by peer [127.0.0.1]:45986.
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
        ============================================================
        env FAILED
        ------------------------------------------------------------
        Root Cause (first observed failure):
        [0]:
          time      : 2026-11-30_23:23:12
          host      : localhost
          rank      : 1 (local_rank: 1)
          exitcode  : 2 (pid: 9172)
          error_file: <N/A>
          traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
        ============================================================
        PAGE
        exit 1
    """)
    done = started(HEAD + script, stderr=subprocess.PIPE)
    out, error = done.communicate(timeout=240)
    assert done.returncode == 1
    assert out.rstrip().endswith("=====")
    head, *lines = error.splitlines()
    assert head.startswith("neoxlite launch: the run ended with code 1; its logs: outputs/")
    assert lines[0] == "cause      data_path: 文書.idx is damaged"
    assert lines[-1] == "fix        Copy it again."


@pytest.mark.parametrize(("code", "told"), [(0, False), (85, False), (86, False), (130, False), (1, True), (137, True)])
def test_an_end_without_an_explanation(
    code: int, told: bool, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is told of an end as asked; of a failure that cannot be explained, the command that does it."""
    monkeypatch.setitem(sys.modules, "hpcjob.logs.explain.command", None)
    tell_why(place / "実行", code)
    error = capsys.readouterr().err
    assert error.startswith(f"neoxlite launch: the run ended with code {code}; ") is told
    assert (f"why: hpcjob explain {place}/実行" in error) is told
    assert bool(error) is told


def test_the_run_outlives_its_reader(place: Path) -> None:
    """With ``| head`` the reader goes: the run ends as it would have, and its code is returned."""
    process = started(f"{HEAD}seq 1 100000\nsleep 0.3\nseq 1 100000\ntouch ended\nexit 86")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(240) == 86
    assert (place / "ended").exists()


def test_a_failure_before_the_log_is_shown() -> None:
    """What the script says before it has a log is not lost."""
    done = started("echo 'no folder'; exit 87")
    out, _ = done.communicate(timeout=240)
    assert (done.returncode, out) == (87, "no folder\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_goes_on_and_its_outcome_comes_back(number: int, running: list[subprocess.Popen[str]]) -> None:
    """The script hears it, ends as it likes, and its code is returned."""
    script = f"{HEAD}trap 'echo heard; exit 86' INT TERM\necho ready\nwhile :; do sleep 0.05; done"
    process = started(script)
    running.append(process)
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    process.send_signal(number)
    out, _ = process.communicate(timeout=240)
    assert (process.returncode, out) == (86, "heard\n")


def test_the_script_ends_when_the_launcher_is_killed(running: list[subprocess.Popen[str]], place: Path) -> None:
    """SIGKILL of the launching process reaches the script as SIGTERM."""
    process = started(f"{HEAD}trap 'echo ended >ended; exit' TERM\necho $$ ready\nwhile :; do sleep 0.05; done")
    running.append(process)
    assert process.stdout is not None
    while "ready" not in process.stdout.readline():
        assert process.poll() is None
    process.kill()
    process.wait()
    deadline = time.monotonic() + 240
    while not (place / "ended").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (place / "ended").exists()


def test_files_of_a_training_are_looked_at_before_ranks_are_started(
    capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    """The reason is all that is printed: a dataset that is missing, then one of another vocabulary."""
    assert main(["launch", "-d", "configs", "run.yml"]) == 2
    assert "no dataset data/文書_text_document" in capsys.readouterr().err
    (place / "data").mkdir()
    write_dataset(place / KEYS["data_path"], [np.array([1, 600], np.uint16)])
    assert main(["launch", "-d", "configs", "run.yml", "--set", "tokenizer_type=CharLevelTokenizer"]) == 2
    assert "holds token 600, but the vocabulary has 512" in capsys.readouterr().err
    assert not (place / "outputs").exists()


def test_a_folder_that_cannot_be_made_is_named(
    capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where the outputs should be."""
    (place / "outputs").write_text("")
    monkeypatch.setattr("neoxlite.launch.files.check_files", lambda cfg, hosts: None)
    assert main(["launch", "-d", "configs", "run.yml"]) == 1
    assert "the folder of the run" in capsys.readouterr().err
    assert not os.environ.get("RANK")


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
