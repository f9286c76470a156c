"""The states of jobs, as hpcjob tells them from a real Slurm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.testbed import Testbed
from tests.cluster.testbed.processes import PATIENCE_S, wait_until
from tests.cluster.user import BIN, PROFILE, User

pytestmark = pytest.mark.cluster

SLEEP = ["sleep", "300"]


def test_pending_running_cancelled(user: User) -> None:
    """A job that waits for the nodes of another is PENDING, then RUNNING; a cancelled one is CANCELLED."""
    whole = ["--exclusive"]
    first = user.submit(user.write_job("first", kind="cpu", command=SLEEP, extra=whole), "--nodes", "2")
    user.wait_for_state(first, "RUNNING")
    second = user.submit(user.write_job("second", kind="cpu", command=SLEEP, extra=whole))
    assert user.status(second)["state"] == "PENDING"
    assert {job["id"] for job in map(json.loads, user.hpcjob("status", "--json").splitlines())} == {first, second}

    user.hpcjob("cancel", first)
    user.wait_for_state(first, "CANCELLED")
    user.wait_for_state(second, "RUNNING")
    user.hpcjob("cancel", second)
    assert user.wait(second) != 0
    assert user.status(second)["state"] == "CANCELLED"


def test_cancelled_before_it_ran(user: User) -> None:
    """A job cancelled while it waits is CANCELLED, though it has left no exit record."""
    job = user.submit(user.write_job("held", kind="cpu", command=SLEEP, extra=["--hold"]))
    user.wait_for_state(job, "PENDING")
    user.hpcjob("cancel", job)
    user.wait_for_state(job, "CANCELLED")


def test_completed_and_failed(user: User) -> None:
    """The codes of a success and of a failure are seen by status, wait and submit --follow."""
    good = user.submit(user.write_job("good", kind="cpu", command=["true"]))
    bad = user.submit(user.write_job("bad", kind="cpu", command=["sh", "-c", "echo some words; exit 7"]))
    assert user.wait(good) == 0
    assert user.wait(bad) == 7
    assert user.status(good)["state"] == "COMPLETED"
    assert (user.status(bad)["state"], user.status(bad)["exit_code"]) == ("FAILED", 7)
    assert "some words" in user.log(bad)

    followed = user.run(BIN / "hpcjob", "submit", "bad.yml", "--profile", PROFILE, "--follow", check=False)
    assert followed.returncode == 7
    assert "some words" in followed.stdout


def test_timeout(user: User) -> None:
    """A job that Slurm ends at its walltime is a TIMEOUT."""
    job = user.submit(user.write_job("long", kind="cpu", command=SLEEP, stop_before_s=0))
    user.wait_for_state(job, "RUNNING")
    # Slurm refuses an end in the second of the start.
    user.run("scontrol", "update", f"jobid={job}", "EndTime=now+2")
    user.wait_for_state(job, "TIMEOUT")


def test_script_rendered_to_a_file_runs_by_itself(user: User) -> None:
    """``render -o job.sh`` and plain sbatch give a job that makes its own folder; attach finds it later."""
    job = user.write_job("by-hand", kind="cpu", command=["sh", "-c", "echo hello from $(hostname)"])
    user.hpcjob("render", job, "--profile", PROFILE, "-o", "job.sh")
    id_ = user.run("sbatch", "--parsable", "--hold", "job.sh").stdout.strip()
    user.hpcjob("attach", id_, "--profile", PROFILE)
    user.run("scontrol", "release", id_)
    assert user.wait(id_) == 0
    assert "hello from node1" in user.log(id_)
    assert Path(user.status(id_)["jobdir"]).parent == user.folder / "outputs" / "by-hand"


def test_attach_with_log_of_a_foreign_script(user: User) -> None:
    """A job that hpcjob did not make is tracked by id, with its own log."""
    script = "#!/bin/bash\necho words of a foreign script\nexit 3\n"
    (user.folder / "foreign.sh").write_text(script)
    id_ = user.run("sbatch", "--parsable", "foreign.sh").stdout.strip()
    log = user.folder / f"slurm-{id_}.out"
    wait_until(log.exists, PATIENCE_S, "the foreign script does not start")
    user.hpcjob("attach", id_, log, "--profile", PROFILE, "--name", "foreign")
    assert user.wait("foreign") == 3, "its code is in the accounting alone, which may lag behind the queue"
    assert "words of a foreign script" in user.log("foreign")


def test_submission_whose_answer_is_lost_is_found_not_repeated(user: User, bed: Testbed) -> None:
    """While the controller hangs sbatch fails though the job is taken; hpcjob finds it, and there is one."""
    job = user.write_job("lost", kind="cpu", command=SLEEP)
    (controller,) = [pid for pid, command in bed.login.processes().items() if command == "slurmctld"]
    os.kill(controller, signal.SIGSTOP)
    try:
        command = (BIN / "hpcjob", "submit", job, "--profile", PROFILE, "--json")
        submitting = user.start(*command, output=user.folder / "submit.out")
        message_timeout_s = 10  # of slurm.conf: sbatch gives up after it
        with pytest.raises(subprocess.TimeoutExpired):
            submitting.wait(message_timeout_s + 2)
    finally:
        os.kill(controller, signal.SIGCONT)
    assert submitting.wait(PATIENCE_S) == 0, (user.folder / "submit.out").read_text()
    ids = user.run("squeue", "--noheader", "--name=lost", "--format=%i").stdout.split()
    assert [user.status("lost")["id"]] == ids


def test_refused_submission_leaves_nothing(user: User) -> None:
    """What sbatch refuses is told in its words, and no half record stays."""
    job = user.write_job("refused", kind="cpu", command=["true"], queue="no-such-partition")
    result = user.run(BIN / "hpcjob", "submit", job, "--profile", PROFILE, check=False)
    assert result.returncode == 1
    assert "invalid partition specified" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (user.folder / "outputs").exists()
    listed = user.hpcjob("list", "--json")
    assert "refused" not in listed
