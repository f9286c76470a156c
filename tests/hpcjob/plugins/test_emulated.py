"""submitit on PBS and PJM, whose commands are emulated: functions submitted, watched, cancelled and taken up again."""

from __future__ import annotations

import contextlib
import functools
import subprocess
from pathlib import Path

import pytest
from submitit.core.utils import FailedJobError, UncompletedJobError

from hpcjob.cli import main
from hpcjob.errors import SchedulerError
from hpcjob.plan import Plan
from hpcjob.plugins import job as job_module
from hpcjob.plugins import submit
from hpcjob.schedulers.command_scheduler import CommandScheduler
from hpcjob.tracking import submission
from hpcjob.tracking.records import Record
from tests.emulators import faults
from tests.emulators.emulator import COMMANDS
from tests.hpcjob.jobs import with_path
from tests.hpcjob.plugins import acts, functions
from tests.hpcjob.plugins.conftest import SYSTEMS, MakePlace

on_both = pytest.mark.parametrize("system", SYSTEMS)
on_pbs, on_pjm = (pytest.mark.parametrize("system", [system]) for system in SYSTEMS)


@on_both
def test_result(place: MakePlace, system: str) -> None:
    """A function of a module, with its arguments, comes back with its result."""
    here = place(system, banner="Maintenance on 12/25: 123 nodes")
    job = here.executor.submit(functions.add, 1, 2)
    assert job.result() == 3
    assert len(here.emulator.jobs) == 1


@pytest.mark.ci
@on_both
def test_what_submitit_promises(place: MakePlace, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The acts; nobody waits long for a pickle that never comes."""
    monkeypatch.setattr(job_module, "_LATE_S", 10_000.0)
    here = place(system)
    every = (acts.results, acts.exceptions, acts.array, acts.cancelled, acts.checkpointed, acts.timed_out)
    acts.together(here.executor, *every, acts.cancelled_before, acts.over_walltime)
    acts.until(lambda: {job["state"] for job in here.emulator.jobs.values()} <= {"ended", "array"}, "all have ended")


@pytest.mark.ci
@pytest.mark.parametrize("system", ["pbs", pytest.param("pjm", marks=pytest.mark.full)])
def test_elements_go_on_as_jobs_of_their_own(place: MakePlace, system: str, tmp_path: Path) -> None:
    """Twice told that its time is over, under its own id; cancel ends the last job; another submits by itself."""
    here = place(system)
    every = [
        functions.Patient(2),
        functions.Patient(99),
        functools.partial(functions.nested, str(tmp_path / "inner"), system),
    ]
    patient, endless, other = here.executor.submit_array(every)
    for number in (1, 2):
        acts.until(lambda number=number: acts.says(patient, f"attempt {number}"), "an attempt runs")
        patient._interrupt(timeout=True)
    assert patient.result() == ("", 3)
    assert patient.record.id != patient.job_id
    endless._interrupt(timeout=True)
    acts.until(lambda: acts.says(endless, "attempt 2"), "the second attempt runs")
    endless.cancel()
    acts.until(lambda: endless.done(force_check=True), "it has ended")
    assert (endless.state, other.result()) == ("CANCELLED", 42)
    assert len({job.record.id for job in (patient, endless, other)}) == 3


@pytest.mark.full
@on_pbs
def test_told_too_often(place: MakePlace, system: str) -> None:
    """``max_num_timeout`` counts over all the jobs that took over."""
    here = place(system)
    here.executor._executor.max_num_timeout = 1
    job = here.executor.submit(functions.Patient(9), "a")
    for number in (1, 2):
        acts.until(lambda number=number: acts.says(job, f"attempt {number}"), "an attempt runs")
        job._interrupt(timeout=True)
    with pytest.raises(FailedJobError, match="timed-out too many times"):
        job.result()
    assert len(here.emulator.jobs) == 2


@pytest.mark.ci
@on_pjm
def test_nobody_takes_over_where_jobs_may_not_submit(place: MakePlace, system: str) -> None:
    """A node may have no submit command, or a group no points left: what was saved is there, and it is said so."""
    here = place(system)
    job = here.executor.submit(functions.Patient(1), "a")
    acts.until(lambda: acts.says(job, "attempt 1"), "it runs")
    here.emulator.set(down=True)
    job._interrupt(timeout=True)
    with pytest.raises(
        FailedJobError, match=r"Job not requeued: it was saved, but cannot continue by itself: (qsub|pjsub)"
    ):
        job.result()
    here.emulator.set(down=False)
    assert job.submission().function.attempts == 2


@pytest.mark.ci
@pytest.mark.parametrize(("system", "history"), [("pbs", False), ("pjm", True)])
def test_bad_days(place: MakePlace, system: str, history: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The submission's answer is lost, then no query is answered, then half of one: one job, and its own end."""
    monkeypatch.setattr(submission, "_LOOKUP_PAUSES_S", (0.0, 0.1, 0.1, 0.1))
    here = place(system, lose_answer=True, full=True, history=history)
    job = here.executor.submit(functions.die, 3)
    assert len(here.emulator.jobs) == 1
    here.emulator.set(lose_answer=False)
    assert (job.state, job.done()) == ("PENDING", False)
    for bad in ({"down": True}, {"down": False, "cut": 60}, {"cut": 0}):
        here.emulator.set(**bad)
        assert not job.done(force_check=True), job.state
        assert job.state in ("UNKNOWN", "PENDING")
    here.emulator.set(cut=None, full=False)
    with pytest.raises(UncompletedJobError, match="FAILED, exit code 3"):
        job.result()


@on_both
def test_refused(place: MakePlace, system: str, here: Path) -> None:
    """The scheduler's words, and what to do; nothing stays."""
    executor = place(system).executor
    executor.update_parameters(**{f"{system}_queue": "nosuch"})
    with pytest.raises(SchedulerError, match=r"Unknown queue|nosuch does not exist"):
        executor.submit(functions.add, 1, 2)
    assert not [path for path in (here.parent / "logs").rglob("*") if path.is_file()]


@pytest.mark.ci
@on_pbs
def test_many_jobs_are_one_question(place: MakePlace, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements that wait: one query for all of their states; hpcjob knows the array, and ends it."""
    here = place(system, full=True)
    monkeypatch.setattr(CommandScheduler, "poll_s", (3600.0, 3600.0))  # however long it takes to go through them
    jobs = here.executor.map_array(functions.sleep, range(20))
    watcher = jobs[0].watcher
    before = watcher.num_calls
    assert {job.state for job in jobs} == {"PENDING"}
    assert watcher.num_calls == before + 1
    array = jobs[0].job_id.rpartition("_")[0]
    assert main(["cancel", array]) == 0
    acts.until(lambda: all(job.done(force_check=True) for job in jobs[:3]), "it has ended")
    assert {job.state for job in jobs} == {"CANCELLED"}


@on_pbs
def test_several_arrays_of_which_one_is_refused(
    place: MakePlace, system: str, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    """Where a site takes two elements, five functions are two arrays and a job; what was submitted is said."""
    emulated = place(system, full=True)
    emulated.executor.update_parameters(pbs_profile={"limits": {"array": 2}})
    jobs = emulated.executor.map_array(functions.add, range(5), range(5))
    assert [job.job_id for job in jobs] == ["101.pbs1_0", "101.pbs1_1", "104.pbs1_0", "104.pbs1_1", "107.pbs1"]
    emulated.executor.update_parameters(pbs_extra=["-h"])
    real = submit.submit_plan

    def refuse_the_third(plan: Plan, folder: Path, submit_dir: Path) -> Record:
        if plan.array is None:
            raise SchedulerError("qsub: no room")
        return real(plan, folder, submit_dir)

    monkeypatch.setattr(submit, "submit_plan", refuse_the_third)
    with pytest.raises(SchedulerError, match=r"^qsub: no room; submitted before this: 108\.pbs1 111\.pbs1$"):
        emulated.executor.map_array(functions.add, range(5), range(5))


@pytest.mark.full
@on_both
def test_three_of_ten_commands_fail(
    place: MakePlace, system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail, hang, answer with garbage, nothing or half: each function that was taken ran once, and is heard of."""
    here = place(system)
    ran = tmp_path / "ran"
    ran.mkdir()
    monkeypatch.setattr(submission, "_LOOKUP_PAUSES_S", (0.0, 0.1, 0.1, 0.1))
    monkeypatch.setattr(subprocess, "Popen", faults.Impatient)
    monkeypatch.setenv("PATH", with_path(faults.put_faults(tmp_path / "faults", COMMANDS[system], seed=5)))
    faults.start(tmp_path / "faults")
    jobs = {}
    for number in range(20):
        with contextlib.suppress(SchedulerError):
            jobs[number] = here.executor.submit(functions.once, str(ran), number)
    assert len(jobs) > 10
    assert len({job.job_id for job in jobs.values()}) == len(jobs)
    while not all(job.done(force_check=True) for job in jobs.values()):
        for number, job in jobs.items():
            assert (ran / str(number)).exists() or not job.done(), job.state
    assert {number: job.result() for number, job in jobs.items()} == {number: number for number in jobs}
    assert {path.read_text() for path in ran.iterdir()} == {"ran\n"}


@pytest.mark.full
@on_both
def test_warned_before_the_walltime(place: MakePlace, system: str) -> None:
    """By the script's own timer."""
    acts.together(place(system).executor, acts.warned)
