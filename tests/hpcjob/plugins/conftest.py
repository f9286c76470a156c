"""The distributions of ``plugins/``, as installed, and emulated schedulers to submit to."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import submitit
from hatchling.builders.wheel import WheelBuilder
from submitit.core import plugins

from hpcjob.schedulers.command_scheduler import CommandScheduler
from tests.emulators import Emulator
from tests.hpcjob.jobs import here, with_path

__all__ = ["here"]

REPOSITORY = Path(__file__).parents[3]
SYSTEMS: list[Literal["pbs", "pjm"]] = ["pbs", "pjm"]


@pytest.fixture(scope="session")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheels of all distributions were unpacked."""
    folder = tmp_path_factory.mktemp("site")
    for project in sorted((REPOSITORY / "plugins").iterdir()):
        for wheel in WheelBuilder(str(project)).build(directory=str(folder / "wheels"), versions=["standard"]):
            zipfile.ZipFile(wheel).extractall(folder / "packages")
    return folder / "packages"


@pytest.fixture
def installed(site_packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """submitit finds the distributions, here and in jobs."""
    monkeypatch.syspath_prepend(str(site_packages))
    monkeypatch.setenv("PYTHONPATH", f"{site_packages}:{REPOSITORY}")
    forget()
    yield
    forget()


def forget() -> None:
    """Let submitit look for its plugins again."""
    for known in (plugins._get_plugins, plugins.get_executors, plugins.get_job_environments):
        known.cache_clear()


class Place:
    """An emulated scheduler, and an executor for it."""

    def __init__(self, emulator: Emulator, executor: submitit.AutoExecutor) -> None:
        self.emulator = emulator
        self.executor = executor


MakePlace = Callable[..., Place]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: None) -> Iterator[MakePlace]:
    """Make an emulated scheduler with switches, and its executor."""
    made: list[Emulator] = []
    monkeypatch.setattr(CommandScheduler, "poll_s", (0.1, 0.5))

    def make(system: Literal["pbs", "pjm"], **switches: Any) -> Place:
        emulator = Emulator(tmp_path / "cluster", system)
        made.append(emulator)
        emulator.set(**switches)
        monkeypatch.setenv("PATH", with_path(emulator.bin))
        executor = submitit.AutoExecutor(tmp_path / "logs", cluster=system)
        # A job that takes over is recorded too; not in the home of the person who runs the tests.
        own = {f"{system}_env": {"XDG_STATE_HOME": str(tmp_path / "state")}}
        executor.update_parameters(timeout_min=5, **own)
        return Place(emulator, executor)

    yield make
    for emulator in made:
        emulator.end()
