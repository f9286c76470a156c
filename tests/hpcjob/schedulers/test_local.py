"""Jobs of this machine, for real: they outlive their starter, are tracked by others, and end with all they started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcjob.errors import InputError, SchedulerError, UnknownJobError
from hpcjob.schedulers.base import JobRef, Submission, UnclearSubmitError
from hpcjob.schedulers.local import LocalScheduler, read_local_job
from hpcjob.schedulers.supervisor import processes
from hpcjob.states import State
from hpcjob.tracking.attaching import attach
from hpcjob.tracking.exit_record import read_exit_record
from hpcjob.tracking.index import read_index
from hpcjob.tracking.records import Record
from hpcjob.tracking.status import Status, ask
from hpcjob.tracking.watch import cancel, refresh, wait_for
from tests.hpcjob.jobs import plan_for, submit_local


def end_of(record: Record) -> Status:
    """Wait for the end of a job."""
    ((_, status),) = wait_for([record], read_index(), timeout_s=240)
    return status


def until(condition: object, *, limit_s: float = 240) -> None:
    """Wait until ``condition()`` is true."""
    deadline = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def running(mark: str) -> set[int]:
    """Return the processes with that command line."""
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if mark in command_line(path)}


def command_line(process: Path) -> str:
    """Return the arguments of /proc/PID, NUL between them; nothing if it is gone."""
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize("code", [0, 1, 85, 86, 87])
def test_exit_code_and_state(code: int) -> None:
    """The exit code of the script is the job's; the folder holds its log and its record."""
    record = submit_local(f"echo 日本; exit {code}")
    status = end_of(record)
    states = {0: State.COMPLETED, 85: State.TIMEOUT, 86: State.CANCELLED}
    assert status.state is states.get(code, State.FAILED)
    assert (status.exit_code, status.job_code) == (code, code)
    assert (record.jobdir / f"{record.id}_job.out").read_text() == "日本\n"
    assert oct(record.jobdir.stat().st_mode)[-3:] == "700"


def test_cancel_ends_grandchildren_wherever_they_hid(here: Path) -> None:
    """In the background, in a session of its own, orphaned, and as a daemon without environment or session."""
    mark = f"4{os.getpid()}1"
    record = submit_local(
        f"sleep {mark} & setsid sleep {mark} & ( sleep {mark} & )\n"
        f"env -i /bin/sh -c 'setsid sleep {mark} & exit' &\nsleep {mark}; true"
    )
    until(lambda: len(running(f"sleep\0{mark}")) == 5)
    told = cancel(record, read_index())
    assert "cancelled" in told
    assert not running(f"sleep\0{mark}")
    status = refresh([record], read_index())[record]
    assert (status.state, status.exit_code) == (State.CANCELLED, 143)


def test_a_script_that_ignores_term_is_killed(here: Path) -> None:
    """After ``kill_wait_s`` comes KILL; the supervisor writes the record that the script could not."""
    jobdir = here / "job"
    jobdir.mkdir()
    script = jobdir / "script.sh"
    script.write_text("trap '' TERM\necho up\nwhile :; do sleep 0.1; done\n")
    local = LocalScheduler(kill_wait_s=0.5)
    submitted = local.submit(Submission(script, jobdir, f"mark-{os.getpid()}", here, plan_for()))
    until(lambda: "up" in (jobdir / f"{submitted.id}_sched.out").read_text())
    ref = JobRef(submitted.id, jobdir)
    assert "cancelled" in local.cancel([ref])[ref.id]
    record = read_exit_record(jobdir, submitted.id)
    assert record is not None
    assert (record.code, record.signal) == (137, "KILL")
    assert ask(local, [ref])[ref.id].state is State.CANCELLED


def test_a_supervisor_that_does_not_answer_may_start_the_job(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no child of ours any more: its job is looked for, and its folder stays."""

    def late(argv: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(argv, 30)

    monkeypatch.setattr("hpcjob.schedulers.local.subprocess.run", late)
    with pytest.raises(UnclearSubmitError, match="did not answer in 30 s"):
        LocalScheduler().submit(Submission(here / "script.sh", here, "mark", here, plan_for()))


def test_the_walltime_ends_a_job() -> None:
    """TIMEOUT, as a batch system would say."""
    record = submit_local("sleep 60", walltime="00:00:01")
    status = end_of(record)
    assert (status.state, status.exit_code) == (State.TIMEOUT, 143)


def test_what_a_script_leaves_behind_is_ended() -> None:
    """A forgotten background process ends with the job, as on a batch system."""
    mark = f"5{os.getpid()}1"
    record = submit_local(f"setsid sleep {mark} >/dev/null 2>&1 &")
    assert end_of(record).state is State.COMPLETED
    assert not running(f"sleep\0{mark}")


def test_a_killed_script_is_failed_with_its_signal() -> None:
    """kill -9 of the script: its trap could not run, the supervisor saw it."""
    record = submit_local("sleep 60")
    os.kill(int(record.id), signal.SIGKILL)
    status = end_of(record)
    assert (status.state, status.exit_code, status.reason) == (State.FAILED, 137, "killed by KILL")


def test_supervisor_killed_then_script_ends_by_itself() -> None:
    """The exit record decides."""
    record = submit_local("touch begun; until [ -e go ]; do sleep 0.05; done; exit 5")
    job = read_local_job(record.jobdir, record.id)
    assert job is not None
    until((record.jobdir / "begun").exists)  # a script that has not begun leaves no record
    os.kill(job.supervisor, signal.SIGKILL)
    until(lambda: processes.start_ticks(job.supervisor) is None)
    (record.jobdir / "go").touch()
    status = end_of(record)
    assert (status.state, status.exit_code, status.source) == (State.FAILED, 5, "exit record")


def test_supervisor_and_script_killed(here: Path) -> None:
    """Nobody saw the end: while a process is left the job is not over, and cancel ends it; then there is no record."""
    mark = f"6{os.getpid()}1"
    record = submit_local(f"sleep {mark}")
    until(lambda: running(f"sleep\0{mark}"))
    job = read_local_job(record.jobdir, record.id)
    assert job is not None
    os.kill(job.supervisor, signal.SIGKILL)
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: refresh([record], read_index())[record].state is State.COMPLETING)
    assert "cancelled" in cancel(record, read_index())
    assert not running(f"sleep\0{mark}")
    assert refresh([record], read_index())[record].state is State.CANCELLED


def test_all_gone_without_a_record_is_failed_not_running() -> None:
    """On the same machine since the same start, a job without any process has ended, badly."""
    record = submit_local("exec sleep 60", traps=False)
    job = read_local_job(record.jobdir, record.id)
    assert job is not None
    os.kill(job.supervisor, signal.SIGKILL)
    processes.end_processes(job.mark, set(), kill_wait_s=0)
    status = end_of(record)
    assert (status.state, status.exit_code, status.job_code) == (State.FAILED, None, 1)


@pytest.mark.parametrize(
    ("change", "state", "word"),
    [
        ({"boot": "another"}, State.NODE_FAIL, "rebooted"),
        ({"host": "another"}, State.UNKNOWN, "another"),
        ({"namespace": "pid:[1]"}, State.UNKNOWN, "container"),
    ],
)
def test_pids_of_elsewhere_mean_nothing_here(here: Path, change: dict[str, str], state: State, word: str) -> None:
    """After a reboot, on another login node or in another container, a pid says nothing of the job."""
    record = submit_local("sleep 60")
    path = record.jobdir / f"{record.id}_local.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    status = refresh([record], read_index())[record]
    assert status.state is state
    assert word in str(status.reason)
    job = read_local_job(record.jobdir, record.id)
    assert job is not None
    processes.end_processes(job.mark, set(), kill_wait_s=0)


def note_of(record: Record, job_id: str | None = None) -> Path:
    """Return the path of what the supervisor noted of a job."""
    return record.jobdir / f"{job_id or record.id}_local.json"


def test_a_pid_that_came_round_again_is_not_the_job(here: Path) -> None:
    """The start time tells them apart; a stranger's process is neither running job nor killed."""
    other = subprocess.Popen(["sleep", "60"])
    try:
        record = submit_local("exit 0")
        end_of(record)
        noted = json.loads(note_of(record).read_text())
        until(lambda: not processes.processes_of(noted["mark"], set()))  # the supervisor too
        gone = {"pid": other.pid, "start": 1, "supervisor": other.pid, "supervisor_start": 1, "state": None}
        note_of(record, str(other.pid)).write_text(json.dumps({**noted, **gone}))
        local = LocalScheduler()
        ref = JobRef(str(other.pid), record.jobdir)
        assert ask(local, [ref])[ref.id].state is State.FAILED
        local.cancel([ref])
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_two_jobs_attached_from_one_folder_are_two(here: Path) -> None:
    """Each has a note of its own: cancelling the second leaves the first alone."""
    first, second = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    try:
        profile = plan_for().profile
        one, two = (attach(str(child.pid), profile) for child in (first, second))
        assert one.jobdir == two.jobdir == here
        assert {status.state for status in refresh([one, two], read_index()).values()} == {State.RUNNING}
        assert "cancelled" in cancel(two, read_index())
        assert second.wait() == -signal.SIGTERM
        assert first.poll() is None
        assert refresh([one], read_index())[one].state is State.RUNNING
    finally:
        for child in (first, second):
            child.kill()
            child.wait()


def test_cancel_where_the_folder_was_removed(here: Path) -> None:
    """All processes are found by the mark in their environment, a session of their own or not."""
    marks = [f"{number}{os.getpid()}1" for number in (7, 8)]
    record = submit_local(f"setsid sleep {marks[0]} &\nsleep {marks[1]}")
    until(lambda: all(running(f"sleep\0{mark}") for mark in marks))
    shutil.rmtree(record.jobdir)
    assert "cancelled" in cancel(record, read_index())
    assert not any(running(f"sleep\0{mark}") for mark in marks)
    assert refresh([record], read_index())[record].state is State.CANCELLED


def test_attach_of_what_is_no_job_leaves_nothing(here: Path) -> None:
    """The machine's process 1, and a pid with zeros before it, which is no job's id."""
    for job_id in ("1", f"00{os.getpid()}"):
        with pytest.raises(UnknownJobError, match=f"does not know job {job_id}"):
            attach(job_id, plan_for().profile)
    assert not list(here.glob("*_local.json"))
    assert not read_index().records


def test_attach_where_nothing_can_be_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and records no job."""
    monkeypatch.chdir("/proc")  # not writable for root either
    with pytest.raises(InputError, match=f"^/proc/{os.getpid()}_local.json cannot be written"):
        attach(str(os.getpid()), plan_for().profile)
    assert not read_index().records


def test_a_note_of_another_process_is_refused(here: Path) -> None:
    """A file whose pid is not the job's id, such as a copy: nothing is killed by it."""
    other = subprocess.Popen(["sleep", "60"])
    try:
        attach(str(other.pid), plan_for().profile)
        ref = JobRef("4194303", here)
        (here / f"{ref.id}_local.json").write_text((here / f"{other.pid}_local.json").read_text())
        assert ask(LocalScheduler(), [ref])[ref.id].state is State.UNKNOWN
        with pytest.raises(SchedulerError, match="gone or damaged"):
            LocalScheduler().cancel([ref])
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("also", ["folder", "note"])
def test_a_job_whose_folder_is_gone_has_ended_when_its_processes_have(here: Path, also: str) -> None:
    """Alive while a process is left, then FAILED: `wait` comes to an end. From another host nothing is concluded."""
    record = submit_local("sleep 60", traps=False)
    noted = json.loads(note_of(record).read_text())
    until(lambda: (record.jobdir / f"{record.id}_job.out").exists())
    os.kill(noted["supervisor"], signal.SIGKILL)
    if also == "folder":
        shutil.rmtree(record.jobdir)
    else:
        note_of(record).unlink()
    assert refresh([record], read_index())[record].state is State.UNKNOWN
    processes.end_processes(noted["mark"], set(), kill_wait_s=0)
    elsewhere = JobRef(record.id, record.jobdir, "another-host")
    assert ask(LocalScheduler(), [elsewhere])[record.id].state is State.UNKNOWN
    status = end_of(record)
    assert status.state is State.FAILED
    assert ("its folder" if also == "folder" else "_local.json") in str(status.reason)


def test_an_end_that_cannot_be_written_leaves_no_rubbish(here: Path) -> None:
    """The supervisor says nothing and leaves no temporary file; later the job is told as ended."""
    record = submit_local("until [ -e go ]; do sleep 0.05; done; exit 3")
    noted = json.loads(note_of(record).read_text())
    note_of(record).unlink()
    note_of(record).mkdir()  # what no file can be renamed to
    (record.jobdir / "go").touch()
    until(lambda: not processes.processes_of(noted["mark"], set()))
    assert (record.jobdir / f"{record.id}_sched.out").read_text() == ""
    assert not list(record.jobdir.glob(".*.tmp"))
    status = end_of(record)
    assert (status.state, status.exit_code) == (State.FAILED, 3)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}', "null", "[" * 100_000, "\0", "1" * 5000])
def test_a_damaged_note_is_no_job(here: Path, text: str) -> None:
    """``ID_local.json`` that cannot be read: the job is UNKNOWN, not over."""
    record = submit_local("sleep 60")
    job = read_local_job(record.jobdir, record.id)
    assert job is not None
    (record.jobdir / f"{record.id}_local.json").write_text(text)
    assert read_local_job(record.jobdir, record.id) is None
    assert refresh([record], read_index())[record].state is State.UNKNOWN
    processes.end_processes(job.mark, set(), kill_wait_s=0)


@pytest.mark.parametrize(
    "wrong",
    [{"code": 10**18}, {"code": "1"}, {"reason": 5}, {"pid": True}, {"pid": 2**40}, {"supervisor": -1}, {"mark": ""}],
)
def test_a_note_of_wrong_values_is_no_note(here: Path, wrong: dict[str, object]) -> None:
    """Nothing of a damaged note gets into the index, which would be unreadable."""
    record = submit_local("exit 0")
    end_of(record)
    note_of(record).write_text(json.dumps({**json.loads(note_of(record).read_text()), "state": "FAILED", **wrong}))
    assert read_local_job(record.jobdir, record.id) is None


def test_a_job_survives_the_shell_that_started_it(here: Path) -> None:
    """Its terminal hangs up, its session is killed: the job ends by itself, seen from here."""
    code = (
        "from tests.hpcjob.jobs import submit_local; import time\n"
        "print(submit_local('sleep 1; echo survived').jobdir, flush=True); time.sleep(60)"
    )
    root = Path(__file__).parents[3]
    shell = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert shell.stdout is not None
    jobdir = Path(shell.stdout.readline().strip())
    os.killpg(shell.pid, signal.SIGHUP)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
    shell.stdout.close()
    (record,) = read_index().records
    assert record.jobdir == jobdir
    assert end_of(record).state is State.COMPLETED
    assert "survived" in (jobdir / f"{record.id}_job.out").read_text()


def test_a_job_started_by_a_job_does_not_end_with_it(here: Path) -> None:
    """Jobs chain by submitting the next one; on a cluster that outlives its maker."""
    root = Path(__file__).parents[3]
    code = "from tests.hpcjob.jobs import submit_local; submit_local('sleep 1; echo second', name='second')"
    record = submit_local(f'cd {here}; PYTHONPATH={root} {sys.executable} -c "{code}"')
    assert end_of(record).state is State.COMPLETED
    second, _ = read_index().records
    assert second.name == "second"
    assert end_of(second).state is State.COMPLETED


def test_script_starts_with_default_signals_and_no_open_files() -> None:
    """SIGPIPE and SIGHUP are what a fresh shell has, stdin is empty, and no descriptor of ours leaks."""
    record = submit_local("grep -E 'SigIgn|SigBlk' /proc/self/status; ls /proc/self/fd | wc -l; wc -c")
    assert end_of(record).state is State.COMPLETED
    lines = (record.jobdir / f"{record.id}_job.out").read_text().split()
    of_the_c_library = 0b11 << 31  # signals 32 and 33: make leaves them ignored, and no program can set them
    assert (lines[0], int(lines[1], 16)) == ("SigBlk:", 0)
    assert (lines[2], int(lines[3], 16) & ~of_the_c_library) == ("SigIgn:", 0)
    assert int(lines[4]) <= 4, "stdin, stdout, stderr and the folder that ls reads"
    assert lines[5] == "0"
