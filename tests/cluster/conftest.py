"""One real cluster for all the tests of this folder: brought up by the first that needs it, ended with the run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.testbed import Testbed, missing_services


@pytest.fixture(scope="session")
def services() -> None:
    """Skip where a test bed cannot be brought up; with CI=true that is a failure."""
    if missing := missing_services():
        reason = "no test bed here: " + ", ".join(missing)
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def bed(services: None) -> Iterator[Testbed]:
    """A login host and two nodes with Slurm, its accounting, and fake GPUs."""
    with Testbed() as bed:
        yield bed
