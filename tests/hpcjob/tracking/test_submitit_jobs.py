"""submitit's classes for our jobs: state, logs, result and cancel from any process, without a pickle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcjob.schedulers.slurm import SlurmScheduler
from hpcjob.tracking.submitit_jobs import LocalJob, SlurmJob, TrackedJob, Watcher
from tests.hpcjob.jobs import calls, fake_command, submit_local, with_path

utils = pytest.importorskip("submitit.core.utils")


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake squeue that prints the file ``rows`` below the header, and a fake sacct that knows nothing."""
    folder = tmp_path / "bin"
    fake_command(folder, "squeue", f"echo 'JOBID|STATE|REASON|NAME'; cat {folder}/rows 2>/dev/null || :")
    fake_command(folder, "sacct", "echo 'JobID|State|ExitCode|JobName'")
    monkeypatch.setenv("PATH", with_path(folder))
    return folder


def slurm_job(folder: Path, job_id: str, watcher: Watcher, tasks: tuple[int, ...] = (0,)) -> TrackedJob:
    """Return a Slurm job behind a watcher of the test's own."""
    return SlurmJob(folder, job_id, tasks, watcher=watcher)


@pytest.mark.parametrize(
    "state", ["CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "REQUEUE_HOLD", "NEW"]
)
def test_live_states_are_not_done(state: str, queue: Path, here: Path) -> None:
    """submitit's own watcher takes these for the end of a job."""
    (queue / "rows").write_text(f"7|{state}|None|x\n")
    assert not slurm_job(here, "7", Watcher(SlurmScheduler())).done(force_check=True)


def test_one_call_for_any_number_of_jobs(queue: Path, here: Path) -> None:
    """Jobs are made first and asked then: 1,000 states, one squeue."""
    (queue / "rows").write_text("".join(f"{number}|RUNNING|None|x\n" for number in range(1000)))
    slurm = SlurmScheduler()
    slurm.poll_s = (3600.0, 3600.0)  # however long it takes to go through them
    watcher = Watcher(slurm)
    jobs = [slurm_job(here, str(number), watcher) for number in range(1000)]
    assert {job.state for job in jobs} == {"RUNNING"}
    assert len(calls(queue, "squeue")) == 1
    assert watcher.num_calls == 1


def test_ended_jobs_are_not_asked_again(queue: Path, here: Path) -> None:
    """Once ended, for ever ended; with nothing left to ask, nobody is asked."""
    fake_command(queue, "sacct", "printf '%s\\n' 'JobID|State|ExitCode|JobName' '7|FAILED|1:0|x'")
    (queue / "rows").write_text("7|FAILED|NonZeroExitCode|x\n")
    job = slurm_job(here, "7", Watcher(SlurmScheduler()))
    assert job.done(force_check=True)
    (queue / "rows").write_text("")
    assert job.state == "FAILED"
    assert job.done(force_check=True)
    assert len(calls(queue, "squeue")) == 1


def test_result_is_the_exit_code_at_once() -> None:
    """No pickle is waited for; a failure is a code, and an exception for those who ask for one."""
    record = submit_local("exit 85")
    job = LocalJob(record.jobdir, record.id)
    assert job.result() == 85
    assert job.state == "TIMEOUT"  # saved for the walltime
    error = job.exception()
    assert isinstance(error, utils.FailedJobError)
    assert "exit code 85" in str(error)
    fine = submit_local("true")
    assert LocalJob(fine.jobdir, fine.id).exception() is None


def test_an_end_without_a_code_is_uncompleted(queue: Path, here: Path) -> None:
    """Cancelled before it began: there is no result to return."""
    (queue / "rows").write_text("7|CANCELLED|None|x\n")
    job = slurm_job(here, "7", Watcher(SlurmScheduler()))
    with pytest.raises(utils.UncompletedJobError, match="CANCELLED"):
        job.result()
    assert isinstance(job.exception(), utils.UncompletedJobError)


def test_local_job_is_watched_and_cancelled_from_another_object() -> None:
    """submitit's LocalJob takes a job of another process for done, and its cancel does nothing."""
    record = submit_local("sleep 60")
    assert not LocalJob(record.jobdir, record.id).done()
    LocalJob(record.jobdir, record.id).cancel()
    again = LocalJob(record.jobdir, record.id)
    assert again.done(force_check=True)
    assert again.state == "CANCELLED"


def test_logs_with_broken_bytes_and_odd_folders(tmp_path: Path, queue: Path) -> None:
    """A rank's log, else the script's; a folder may be called ``100%a %j``, bytes may be no UTF-8."""
    folder = tmp_path / "100%a %j 日本"
    folder.mkdir()
    job = slurm_job(folder, "7", Watcher(SlurmScheduler()), tasks=(0, 1))
    assert job.stdout() is None
    (folder / "7_job.out").write_bytes(b"script\n")
    assert slurm_job(folder, "7", Watcher(SlurmScheduler())).stdout() == "script\n"
    (folder / "7_0_log.out").write_bytes(b"rank \xff 0\r50%\n")
    (folder / "7_1_log.out").write_bytes(b"rank 1\n")
    assert job.task(0).paths.stdout == folder / "7_0_log.out"
    assert job.stdout() == "rank \ufffd 0\n50%\n\nrank 1\n"


def test_every_task_has_the_jobs_state(queue: Path, here: Path) -> None:
    """The tasks of a job share its watcher."""
    (queue / "rows").write_text("7|RUNNING|None|x\n")
    job = slurm_job(here, "7", Watcher(SlurmScheduler()), tasks=(0, 1, 2))
    assert [job.task(rank).state for rank in range(3)] == ["RUNNING"] * 3
    assert not job.done()


def test_import_leaves_logging_alone() -> None:
    """submitit would print its log on stdout, between our JSON; jobs that it starts itself are to log."""
    code = (
        "import logging, os, hpcjob.tracking.submitit_jobs\n"
        "print(logging.getLogger('submitit').handlers, os.environ.get('SUBMITIT_LOG_LEVEL'))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "SUBMITIT_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.stdout == "[] None\n"
