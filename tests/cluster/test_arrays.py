"""Arrays and dependencies on a real Slurm and a real Grid Engine: throttle, elements, codes, cancelling, chains."""

from __future__ import annotations

import re

import pytest

from tests.cluster.test_gridengine import GridEngineUser, cell
from tests.cluster.test_gridengine import user as gridengine_user
from tests.cluster.testbed.processes import PATIENCE_S, wait_until
from tests.cluster.user import BIN, User

pytestmark = pytest.mark.cluster

__all__ = ["cell", "gridengine_user"]

# Each element says when it begins and ends; the second fails.
WORK = (
    'echo "value $0 index $HPCJOB_ARRAY_INDEX"; echo + >>"$1/times"; sleep 1.5; echo - >>"$1/times"; [[ $0 != "b b" ]]'
)


@pytest.fixture(params=["slurm", "gridengine"])
def somebody(request: pytest.FixtureRequest) -> User:
    """A user of each scheduler."""
    found: User = request.getfixturevalue({"slurm": "user", "gridengine": "gridengine_user"}[request.param])
    return found


def most_at_once(lines: list[str]) -> int:
    """Return how many were between their + and - at the same time, by the order of these lines."""
    now = most = 0
    for line in lines:
        now += 1 if line == "+" else -1
        most = max(most, now)
    return most


def test_array(somebody: User) -> None:
    """At most one at once, values as they were written, one log and state an element, the array's code the largest."""
    command = ["bash", "-c", WORK, "{array.value}", str(somebody.folder)]
    array = somebody.submit(
        somebody.write_job("many", kind="cpu", command=command, array=["a", "b b", "日本"], array_limit=1)
    )
    assert somebody.wait(array) == 1
    status = somebody.status(array)
    assert (status["state"], status["exit_code"], status["array"]) == ("FAILED", 1, "0-2")
    assert status["reason"] == "1 FAILED (1), 2 COMPLETED"
    assert [somebody.status(f"{array}_{index}")["state"] for index in range(3)] == ["COMPLETED", "FAILED", "COMPLETED"]
    for index, value in enumerate(["a", "b b", "日本"]):
        assert f"value {value} index {index}" in somebody.log(f"{array}_{index}")
    assert "value b b index 1" in somebody.log(array), "the logs of its elements"
    assert most_at_once((somebody.folder / "times").read_text().split()) == 1


def test_cancel_one_element_and_what_waits_for_the_array(somebody: User) -> None:
    """One element is cancelled, the others go on; then the array; a job that wanted it to end well does not run."""
    array = somebody.submit(somebody.write_job("many", kind="cpu", command=["sleep", "600"], array="3-7:2%1"))
    after = somebody.submit(somebody.write_job("after", kind="cpu", command=["true"]), "--after", array)
    somebody.wait_for_state(f"{array}_3", "RUNNING")
    assert somebody.status(f"{array}_7")["state"] == "PENDING", "one at once"
    assert somebody.status(after)["state"] == "PENDING"
    somebody.hpcjob("cancel", f"{array}_3")
    somebody.wait_for_state(f"{array}_3", "CANCELLED")
    assert somebody.status(f"{array}_5")["state"] in ("RUNNING", "PENDING")
    somebody.hpcjob("cancel", array)
    somebody.wait_for_state(array, "CANCELLED")
    wait_until(
        lambda: somebody.status(after)["state"] in ("CANCELLED", "FAILED"), PATIENCE_S, "the job after it goes on"
    )
    assert not list(somebody.jobdir(after).glob("*_log.out")), "its command has run"


def test_chain(somebody: User) -> None:
    """Each starts when the one before it has ended well; after a failure nothing more runs, and it is said why."""
    good = somebody.write_job("good", kind="cpu", command=["sh", "-c", "sleep 1; date +%s.%N >good"])
    bad = somebody.write_job("bad", kind="cpu", command=["sh", "-c", "date +%s.%N >bad; exit 3"])
    never = somebody.write_job("never", kind="cpu", command=["touch", "never"])
    submitted = somebody.hpcjob("submit", good, bad, never, "--chain", *options(somebody))
    first, second, third = re.findall(r"^job (\S+) ", submitted, re.MULTILINE)
    assert [somebody.wait(job) for job in (first, second)] == [0, 3]
    assert somebody.wait(third) != 0
    assert float((somebody.folder / "good").read_text()) < float((somebody.folder / "bad").read_text())
    assert not (somebody.folder / "never").exists()
    if isinstance(somebody, GridEngineUser):  # -hold_jid asks for no code: the script does
        assert somebody.status(third)["exit_code"] == 87
        assert f"after: job {second} has not ended with code 0" in somebody.log(third)
    said = somebody.run(BIN / "hpcjob", "submit", never, "--after", second, *options(somebody), check=False).stderr
    assert "afterok does not come true any more" in said


def options(somebody: User) -> list[str]:
    """Return profile and account of a user."""
    return ["-p", "cell", "--account", "gaa50000"] if isinstance(somebody, GridEngineUser) else ["-p", "testbed"]
