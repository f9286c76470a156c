"""Following goes on where Slurm starts a job anew under its id, and where another job goes on with the run."""

from __future__ import annotations

import re

import pytest

from tests.cluster.testbed.processes import PATIENCE_S, wait_until
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
            wait_until(lambda: " 5/8 " in shown.read_text(), PATIENCE_S, "the first iterations are not shown")
            user.run("scontrol", "requeuehold", id_)  # held, or it could be over before it is seen to wait
            user.wait_for_state(id_, "PENDING")
            # Slurm lets a requeued job wait until the old credentials have run out. One of the same second as the end
            # counts as old, and the job as failed ("Job credential revoked").
            user.run("scontrol", "update", f"jobid={id_}", "StartTime=now+2")
            user.run("scontrol", "release", id_)
            assert tail.wait(PATIENCE_S) == 0
        finally:
            tail.kill()
    text = shown.read_text()
    rows = [int(row) for row in re.findall(r"^ *(\d+)/8 ", text, re.MULTILINE)]
    assert rows == [*range(1, 6), *range(4, 9)], text
    after_the_first = text[text.index(" 5/8 ") :]
    assert len(re.findall(rf"^hpcjob: \S+ job {id_} on ", after_the_first, re.MULTILINE)) == 1, text
    assert user.status(id_)["state"] == "COMPLETED"


PART = """
import pathlib, sys, time
first, last = map(int, sys.argv[1:])
for number in range(first, last + 1):
    print(f" samples/sec: 10.0 | iteration {number:8d}/       8 | elapsed time per iteration (ms): 100.0 | "
          f"learning rate: 1.000E-04 | lm_loss: {9 - number}.000000E+00 |", flush=True)
while first == 1 and not pathlib.Path("go").exists():
    time.sleep(0.1)
"""


def test_following_goes_on_with_the_job_after(user: User) -> None:
    """``tail -f`` of the first job shows the rows of both, says where the second begins, and ends with it."""
    work = user.folder / "part.py"
    work.write_text(PART)
    jobs = [
        user.write_job(name, command=["python", str(work), *numbers], procs_per_node=1)
        for name, numbers in (("one", ("1", "5")), ("two", ("6", "8")))
    ]
    first = user.submit(jobs[0], "--nodes", "1")
    second = user.submit(jobs[1], "--nodes", "1", "--after", first)
    shown = user.folder / "shown.txt"
    with user.start(BIN / "hpcjob", "tail", first, "-f", output=shown) as tail:
        try:
            wait_until(lambda: " 5/8 " in shown.read_text(), PATIENCE_S, "the first iterations are not shown")
            (user.folder / "go").touch()
            assert tail.wait(PATIENCE_S) == 0
        finally:
            tail.kill()
    text = shown.read_text()
    assert [int(row) for row in re.findall(r"^ *(\d+)/8 ", text, re.MULTILINE)] == list(range(1, 9)), text
    assert f"==> job {first} has ended; the run continues in job {second}" in text
