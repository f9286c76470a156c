"""The folder in which the tests of launching work."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.neoxlite.launch.launching import KEYS


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test works in an empty folder with one configuration, without GPUs and variables of a launcher."""
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
