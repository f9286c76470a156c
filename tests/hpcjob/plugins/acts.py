"""What submitit promises, asked of one executor: the same acts on emulated and on real schedulers.

Each act is a generator: it submits up to its ``yield``, and looks at what came of it afterwards, so that many wait
together. ``python -m tests.hpcjob.plugins.acts CLUSTER FOLDER PARAMETERS ACT...`` runs them where a test cannot go.
"""

from __future__ import annotations

import functools
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import submitit
from submitit.core.utils import FailedJobError, UncompletedJobError

from tests.hpcjob.plugins import functions

Act = Callable[[submitit.AutoExecutor], Iterator[None]]
WAIT_S = 240


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def says(job: Any, words: str) -> bool:
    """Return whether a job has printed ``words``."""
    return words in (job.stdout() or "")


def results(executor: submitit.AutoExecutor) -> Iterator[None]:
    """A result, what was printed, the environment; the same from a pickle of the job and from its folder and id."""
    added = executor.submit(functions.add, 5, right=7)
    told = executor.submit(functions.environment)
    executor.update_parameters(stderr_to_stdout=True)
    merged = executor.submit(functions.add, 1, 1)
    executor.update_parameters(stderr_to_stdout=False)
    yield
    assert added.result() == 12
    assert added.done()
    assert added.exception() is None
    assert says(added, "たす 5\n")
    assert "to stderr\n" in (added.stderr() or "")
    assert "to stderr" not in (added.stdout() or "")
    assert merged.result() == 2
    assert says(merged, "たす 1\nto stderr\n")
    assert merged.stderr() is None
    assert added.submission().kwargs == {"right": 7}
    assert added.paths.submission_file.read_text().startswith("#!/bin/bash\n")
    assert pickle.loads(pickle.dumps(added)).result() == 12
    assert type(added)(executor.folder, added.job_id).result() == 12
    known = told.result()
    assert (known["job_id"], known["cluster"]) == (told.job_id, executor.cluster)
    assert (known["num_tasks"], known["global_rank"], known["num_nodes"], known["hosts"]) == (1, 0, 1, 1)
    assert known["cwd"] == str(Path.cwd())
    until(lambda: told.state == "COMPLETED", "a job that has returned is COMPLETED")


def exceptions(executor: submitit.AutoExecutor) -> Iterator[None]:
    """An exception is told with its trace; a process that died without a pickle at once, with its last words."""
    raised = executor.submit(functions.fail, "of its own")
    died = executor.submit(functions.die, 7)
    yield
    with pytest.raises(FailedJobError, match="ValueError: of its own"):
        raised.result()
    with pytest.raises(UncompletedJobError, match=r"FAILED, exit code 7 .*left no result(.|\n)*about to die"):
        died.result()
    assert (died.state, died.get_info()["ExitCode"]) == ("FAILED", "7")


def array(executor: submitit.AutoExecutor) -> Iterator[None]:
    """The functions of a batch are one array, each with its own arguments, log and result; one may fail."""
    with executor.batch():
        jobs = [executor.submit(functions.add, number, 10) for number in range(3)]
        bad = executor.submit(functions.fail, "one of four")
    yield
    assert [job.result() for job in jobs] == [10, 11, 12]
    number = jobs[0].job_id.rpartition("_")[0]
    assert [job.job_id for job in (*jobs, bad)] == [f"{number}_{index}" for index in range(4)]
    assert all(says(job, f"たす {index}\n") for index, job in enumerate(jobs))
    with pytest.raises(FailedJobError, match="one of four"):
        bad.result()
    assert type(bad)(executor.folder, f"{number}_1").result() == 11
    assert jobs[0].watcher is bad.watcher


def cancelled(executor: submitit.AutoExecutor) -> Iterator[None]:
    """A running job is cancelled, and has no result; nobody waits for one."""
    job = executor.submit(functions.sleep, 600)
    yield
    until(lambda: says(job, "asleep"), "the job runs")
    assert not job.done(force_check=True)
    until(lambda: job.state == "RUNNING", "it is told to run")  # the queue may hear of the start after the job
    job.cancel()
    job.wait()
    until(lambda: job.state == "CANCELLED", f"it is {job.state}")
    with pytest.raises(UncompletedJobError, match="CANCELLED"):
        job.result()


def cancelled_before(executor: submitit.AutoExecutor) -> Iterator[None]:
    """A job that waits is not done; cancelled then, it is, though it has left nothing anywhere."""
    held = {"slurm": ["--hold"], "gridengine": ["-h"], "pbs": ["-h"], "pjm": ["--hold"]}
    own = f"{executor.cluster}_extra"
    executor.update_parameters(**{own: held[executor._executor.profile().scheduler.type]})
    job = executor.submit(functions.add, 1, 2)
    executor.update_parameters(**{own: []})
    yield
    until(lambda: job.state == "PENDING", "it waits")
    assert not job.done(force_check=True)
    job.cancel()
    until(lambda: job.done(force_check=True), "it has ended")
    assert job.state == "CANCELLED"
    with pytest.raises(UncompletedJobError, match="CANCELLED"):
        job.result()


def checkpointed(executor: submitit.AutoExecutor) -> Iterator[None]:
    """Near its walltime a callable saves itself and runs again with what it saved, under the id that is known."""
    job = executor.submit(functions.Patient(1), "saved")
    element, other = executor.submit_array([functions.Patient(1), functools.partial(functions.add, 1, 1)])
    yield
    for one in (job, element):
        until(lambda one=one: says(one, "attempt 1"), "the first attempt runs")
        one._interrupt(timeout=True)
    for one, word in ((job, "saved"), (element, "")):
        assert one.result() == (word, 2)
        assert says(one, "attempt 1\n")
        assert says(one, "attempt 2\n")
    assert other.result() == 2


def timed_out(executor: submitit.AutoExecutor) -> Iterator[None]:
    """What cannot save itself ends near its walltime, and says why."""
    job = executor.submit(functions.sleep, 600)
    yield
    until(lambda: says(job, "asleep"), "the job runs")
    job._interrupt(timeout=True)
    with pytest.raises(FailedJobError, match="timed-out and not checkpointable"):
        job.result()


def over_walltime(executor: submitit.AutoExecutor) -> Iterator[None]:
    """What is ended at its walltime is a TIMEOUT (seconds, so for emulated schedulers)."""
    own = {f"{executor.cluster}_walltime": "0:00:02", f"{executor.cluster}_stop_before_s": 0}
    executor.update_parameters(**own)
    job = executor.submit(functions.sleep, 600)
    executor.update_parameters(**dict(zip(own, ["0:05:00", 300], strict=True)))
    yield
    with pytest.raises(UncompletedJobError, match="ended as TIMEOUT"):
        job.result()


def warned(executor: submitit.AutoExecutor) -> Iterator[None]:
    """The scheduler's signal, or the script's timer, comes before the walltime by itself, and once more."""
    executor.update_parameters(**{f"{executor.cluster}_walltime": "0:01:00"})
    saved = executor.submit(functions.Patient(2), "saved")
    executor.update_parameters(**{f"{executor.cluster}_stop_before_s": 0})
    ended = executor.submit(functions.sleep, 600)
    executor.update_parameters(**{f"{executor.cluster}_stop_before_s": 300, f"{executor.cluster}_walltime": "0:05:00"})
    yield
    assert saved.result() == ("saved", 3)
    with pytest.raises(UncompletedJobError, match="TIMEOUT"):
        ended.result()


def node_lost(executor: submitit.AutoExecutor) -> Iterator[None]:
    """Slurm: a job whose node is lost starts anew by itself, and meanwhile is not done."""
    job = executor.submit(functions.second_time, str(Path.cwd()))
    yield
    until(lambda: says(job, "asleep"), "it runs")
    node = subprocess.run(["squeue", "-h", "-j", job.job_id, "-o", "%N"], capture_output=True, text=True).stdout.strip()
    subprocess.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=test"], check=True)
    try:
        while not job.done(force_check=True):
            time.sleep(0.2)
        assert job.result() == "the second time"
    finally:  # unless it has come back by itself
        subprocess.run(["scontrol", "update", f"nodename={node}", "state=resume"], capture_output=True, check=False)


def steady(executor: submitit.AutoExecutor) -> Iterator[None]:
    """Asked without a pause while its scheduler is in trouble, a running job is never done before it is."""
    go_on = Path("go-on").absolute()
    job = executor.submit(functions.wait_for, str(go_on))
    yield
    until(lambda: job.state == "RUNNING", "it runs")
    print("running", flush=True)
    while not job.done(force_check=True):
        print("asked:", job.state, flush=True)
        # Slurm's accounting, asked in the queue's place, may not have heard of the start.
        assert job.state in {"PENDING", "RUNNING", "UNKNOWN", "COMPLETING"}
    assert go_on.exists()
    assert job.result() == "went on"


def tasks(executor: submitit.AutoExecutor) -> Iterator[None]:
    """Two tasks on each of two nodes: each has its rank, log and result."""
    executor.update_parameters(nodes=2, tasks_per_node=2)
    job = executor.submit(functions.environment)
    executor.update_parameters(nodes=1, tasks_per_node=1)
    yield
    told = job.results()
    assert [one["global_rank"] for one in told] == [0, 1, 2, 3]
    assert [(one["node"], one["local_rank"]) for one in told] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {(one["num_tasks"], one["num_nodes"], one["hosts"], one["job_id"]) for one in told} == {
        (4, 2, 2, job.job_id)
    }
    assert job.num_tasks == 4
    assert job.task(3).result() == told[3]
    assert "global_rank=3(4)" in (job.task(3).stdout() or "")


def together(executor: submitit.AutoExecutor, *acts: Act) -> None:
    """Run acts, all of whose jobs are submitted before the first is looked at."""
    running = [(act, act(executor)) for act in acts]
    for _, act in running:
        next(act)
    for what, act in running:
        with pytest.raises(StopIteration):
            next(act)
        print(f"{what.__name__}: as it should be", flush=True)


def main(cluster: str, folder: str, parameters: str, *names: str) -> None:
    """Run the acts of these names."""
    executor = submitit.AutoExecutor(folder, cluster=cluster)
    executor.update_parameters(timeout_min=5, **json.loads(parameters))
    together(executor, *(globals()[name] for name in names))


if __name__ == "__main__":
    main(*sys.argv[1:])
