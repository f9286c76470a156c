"""A home and a current folder of the test's own, and no job left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcjob.schedulers import supervisor
from hpcjob.schedulers.local import read_local_job


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with an index of its own; local jobs started below it are ended after the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    for path in tmp_path.rglob("local.json"):
        job = read_local_job(path.parent)
        if job is not None:
            supervisor.end_processes(job.mark, set(), kill_wait_s=0)
