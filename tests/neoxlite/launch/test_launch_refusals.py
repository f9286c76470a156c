"""What is refused, or noted, before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from forked_worlds import write_dataset

from neoxlite.cli import main
from neoxlite.errors import ConfigError
from neoxlite.launch.settings import Request, launch_settings
from tests.neoxlite.launch.launching import KEYS, NO_GPU

pytestmark = pytest.mark.usefixtures("place")


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
        (["--hostfile", "hosts", "--set", "num_nodes=3"], "num_nodes: 3 requested, but there are 2 hosts"),
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
    assert waited == [5.0] * waits


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
