"""Three of ten commands of the real Slurm fail, hang, answer with garbage, nothing or half."""

from __future__ import annotations

import sys

import pytest

from tests.cluster.testbed.bed import REPOSITORY
from tests.cluster.user import User

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("submissions", "polls"),
    [
        pytest.param("20", "100", id="20 submissions"),
        pytest.param("200", "1000", id="200 submissions", marks=[pytest.mark.full, pytest.mark.timeout(3600)]),
    ],
)
def test_nothing_false_is_concluded(user: User, submissions: str, polls: str) -> None:
    """No job twice, none lost, no end that has not come or is another."""
    run = [sys.executable, "-m", "tests.cluster.faulty_run", "slurm", submissions, polls]
    environment = {"PYTHONPATH": str(REPOSITORY), "XDG_STATE_HOME": str(user.folder / "state")}
    done = user.bed.login.run(*run, cwd=user.folder, env=environment, timeout_s=3600)
    print(done.stdout)
    assert "accepted" in done.stdout
