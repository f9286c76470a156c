"""A cluster that keeps no history: the queue and the job's own exit record are all there is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.testbed import Testbed
from tests.cluster.user import User

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plain_user(services: None) -> Iterator[User]:
    """A user of a cluster of two nodes without accounting, whose profile says so."""
    with Testbed(has_accounting=False) as bed:
        user = User(bed, bed.work / "user")
        user.write_profile({"scheduler": {"history": False}})
        yield user


def test_ended_job_that_the_queue_forgot_has_its_code(plain_user: User) -> None:
    """Once Slurm has forgotten a job its exit record tells how it ended."""
    job = plain_user.submit(plain_user.write_job("forgotten", kind="cpu", command=["sh", "-c", "exit 7"]))
    plain_user.bed.login.run("scontrol", "wait_job", job, check=False)
    plain_user.run("sh", "-c", "until [ -e outputs/forgotten/*/*_exit.json ]; do sleep 0.1; done")
    # A restart of the controller without its saved state: nothing is left of any job.
    plain_user.bed.slurm.forget_jobs()
    assert plain_user.run("squeue", "--noheader", "--states=all").stdout == ""
    assert plain_user.wait(job) == 7
    assert (plain_user.status(job)["state"], plain_user.status(job)["exit_code"]) == ("FAILED", 7)


def test_lost_node_is_a_node_fail(plain_user: User) -> None:
    """The loss of a node, all its processes at once, is told as NODE_FAIL."""
    bed = plain_user.bed
    job = plain_user.submit(plain_user.write_job("crash", command=["sleep", "300"]), "--nodes", "2")
    plain_user.wait_for_state(job, "RUNNING")
    bed.nodes[1].crash()
    bed.login.run("scontrol", "update", "nodename=node2", "state=down", "reason=crashed")
    plain_user.wait_for_state(job, "NODE_FAIL")
