"""One real cluster for all the tests of this folder: brought up by the first that needs it, ended with the run."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster.need import need
from tests.cluster.testbed import Testbed, missing_services
from tests.cluster.training import Training
from tests.cluster.user import User


@pytest.fixture(scope="session")
def services() -> None:
    """Skip where a test bed cannot be brought up; with CI=true that is a failure."""
    need(missing_services(), "test bed")


@pytest.fixture(scope="session")
def bed(services: None) -> Iterator[Testbed]:
    """A login host and two nodes with Slurm, its accounting, and fake GPUs."""
    with Testbed() as bed:
        yield bed


@pytest.fixture
def user(bed: Testbed, request: pytest.FixtureRequest) -> Iterator[User]:
    """A user with a new folder and the profile ``testbed``; their jobs end with the test."""
    user = User(bed, bed.work / re.sub(r"\W+", "_", request.node.name))
    user.write_profile()
    yield user
    bed.login.run("scancel", "--user=root", "--full", "--signal=KILL", check=False)
    bed.login.run("scancel", "--user=root")


@pytest.fixture(scope="session")
def training(bed: Testbed) -> Training:
    """A model small enough to train in a second, with its data, on the shared file system."""
    return Training.prepare(User(bed, bed.work / "training"))
