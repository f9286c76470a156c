"""A job that Slurm starts anew under its id is followed through it."""

from __future__ import annotations

import re

import pytest

from tests.cluster.testbed.processes import wait_until
from tests.cluster.user import BIN, User

pytestmark = pytest.mark.cluster

# The first time it stops in the middle, as one that waits for a lost node does; then it goes on from what was saved.
WORK = """
import pathlib, time
first = not pathlib.Path("saved").exists()
pathlib.Path("saved").touch()
for number in range(1, 6) if first else range(4, 9):
    print(f" samples/sec: 10.0 | iteration {number:8d}/       8 | elapsed time per iteration (ms): 100.0 | "
          f"learning rate: 1.000E-04 | lm_loss: {9 - number}.000000E+00 |", flush=True)
if first:
    time.sleep(600)
"""


def test_following_goes_on_through_a_requeue(user: User) -> None:
    """``tail -f`` waits while the job is pending again, shows the new start, and ends with the job."""
    (user.folder / "work.py").write_text(WORK)
    work = user.folder / "work.py"
    job = user.write_job("again", extra=["--requeue"], command=["python", str(work)], procs_per_node=1)
    id_ = user.submit(job, "--nodes", "1")
    shown = user.folder / "shown.txt"
    with user.start(BIN / "hpcjob", "tail", id_, "-f", output=shown) as tail:
        try:
            wait_until(lambda: " 5/8 " in shown.read_text(), 90, "the first iterations are not shown")
            user.run("scontrol", "requeue", id_)
            user.wait_for_state(id_, "PENDING")
            # Slurm lets a requeued job wait until the old credentials have run out.
            wait_until(
                lambda: user.run("scontrol", "update", f"jobid={id_}", "StartTime=now", check=False).returncode == 0,
                60,
                "the job cannot be started at once",
            )
            assert tail.wait(150) == 0
        finally:
            tail.kill()
    text = shown.read_text()
    rows = [int(row) for row in re.findall(r"^ *(\d+)/8 ", text, re.MULTILINE)]
    assert rows == [*range(1, 6), *range(4, 9)], text
    assert len(re.findall(rf"^hpcjob: \S+ job {id_} on ", text, re.MULTILINE)) == 1, text  # the second start
    assert user.status(id_)["state"] == "COMPLETED"
