"""Many states by few questions, and what is remembered of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from hpcjob.cli import main
from hpcjob.states import State
from hpcjob.tracking.index import append, read_index
from hpcjob.tracking.records import Record
from hpcjob.tracking.status import Status
from hpcjob.tracking.waits import Waits
from hpcjob.tracking.watch import ago, cancel, refresh, wait_for
from tests.hpcjob.jobs import calls, fake_command, with_path


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake Slurm: squeue prints the file ``rows``, or fails while ``down`` exists; accounting is off."""
    folder = tmp_path / "bin"
    fake_command(
        folder,
        "squeue",
        f"[[ ! -e {folder}/down ]] || {{ echo 'Unable to contact slurm controller' >&2; exit 1; }}\n"
        f"echo 'JOBID|STATE|REASON|NAME'; cat {folder}/rows",
    )
    fake_command(folder, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    (folder / "rows").write_text("")
    monkeypatch.setenv("PATH", with_path(folder))
    return folder


def job(job_id: str, *, minute: int = 0, server: str = "", attached: bool = False) -> Record:
    """Record a job of Slurm and return it."""
    record = Record(
        profile="lab",
        scheduler="slurm",
        server=server,
        id=job_id,
        submitted=f"2026-11-29T12:{minute:02d}:00.000000+00:00",
        name=f"job{job_id}",
        directory=str(Path.cwd() / f"{job_id}-{minute}"),
        attached=attached,
    )
    append(record)
    return record


def test_one_question_a_cluster(slurm: Path) -> None:
    """300 jobs on two clusters: two calls of squeue, however they are mixed."""
    records = [job(str(number), server="gamma" if number % 3 else "") for number in range(300)]
    (slurm / "rows").write_text("".join(f"{number}|RUNNING|None|x\n" for number in range(300)))
    assert {status.state for status in refresh(records, read_index()).values()} == {State.RUNNING}
    assert sorted(calls(slurm, "squeue")) == sorted(
        [f"--user={os.getuid()} --states=all {at}--format=%i|%T|%r|%j" for at in ("", "--clusters=gamma ")]
    )


def test_changes_are_noted_once_and_ends_are_final(slurm: Path) -> None:
    """PENDING, RUNNING twice, TIMEOUT: three notes; then no question any more."""
    record = job("7")
    for state in ("PENDING", "RUNNING", "RUNNING", "TIMEOUT"):
        (slurm / "rows").write_text(f"7|{state}|None|x\n")
        refresh([record], read_index())
    asked = len(calls(slurm, "squeue"))
    assert refresh([record], read_index())[record].source == "index"
    assert len(calls(slurm, "squeue")) == asked
    assert [change.state.value for change in read_index().changes[record.key]] == ["PENDING", "RUNNING", "TIMEOUT"]


def test_the_code_of_a_failure_is_asked_for_again(slurm: Path) -> None:
    """The history was silent when the job failed: its code is told as soon as the history has it."""
    record = job("7")
    (slurm / "rows").write_text("7|FAILED|None|x\n")
    status = refresh([record], read_index())[record]
    assert (status.state, status.exit_code) == (State.FAILED, None)
    fake_command(slurm, "sacct", "echo 'JobID|State|ExitCode|JobName'; echo '7|FAILED|9:0|x'")
    status = refresh([record], read_index())[record]
    assert (status.state, status.exit_code) == (State.FAILED, 9)
    assert refresh([record], read_index())[record].source == "index"


def test_a_failure_after_an_order_to_end_is_a_cancelled_job(slurm: Path) -> None:
    """Some schedulers tell one from the other by nothing; what is gone after the order was cancelled, too."""
    records = [job("7"), job("8"), job("9")]
    (slurm / "rows").write_text("7|RUNNING|None|x\n8|RUNNING|None|x\n9|RUNNING|None|x\n")
    fake_command(slurm, "scancel", "")
    for record in records:
        cancel(record, read_index())
    (slurm / "rows").write_text("7|FAILED|None|x\n9|COMPLETED|None|x\n")
    states = [status.state for status in refresh(records, read_index()).values()]
    assert states == [State.CANCELLED, State.CANCELLED, State.COMPLETED]


def test_a_job_that_comes_after_another_need_not_be_held(slurm: Path) -> None:
    """Grid Engine's ``hqw`` is both: nobody is told to release what waits for the other's end."""
    first, second = job("7"), msgspec.structs.replace(job("8"), after=("afterany:7",))
    (slurm / "rows").write_text("7|PENDING|held|x\n8|PENDING|held|x\n")
    statuses = refresh([first, second], read_index())
    assert [status.reason for status in statuses.values()] == ["held", "waits for afterany:7, or held"]
    assert [bool(status.held_up) for status in statuses.values()] == [True, False]


def test_unknown_tells_its_age_and_ends_nothing(slurm: Path) -> None:
    """Gone from the queue, accounting off: UNKNOWN since when, and why; it is not noted."""
    record = job("7")
    status = refresh([record], read_index())[record]
    assert status.state is State.UNKNOWN
    assert "not in the queue, no exit record" in str(status.reason)
    assert "submitted" in str(status.reason)
    assert record.key not in read_index().changes
    (slurm / "rows").write_text("7|RUNNING|None|x\n")
    refresh([record], read_index())
    (slurm / "down").write_text("")
    status = refresh([record], read_index())[record]
    assert "Unable to contact slurm controller" in str(status.reason)
    assert "last seen RUNNING" in str(status.reason)


def test_a_node_failure_may_not_be_the_end(slurm: Path) -> None:
    """Slurm starts such a job again: it is asked about; once forgotten by Slurm the failure stands."""
    record = job("7")
    (slurm / "rows").write_text("7|NODE_FAIL|None|x\n")
    assert refresh([record], read_index())[record].state is State.NODE_FAIL
    (slurm / "rows").write_text("")
    assert refresh([record], read_index())[record].state is State.NODE_FAIL
    (slurm / "rows").write_text("7|PENDING|BeginTime|x\n")
    assert refresh([record], read_index())[record].state is State.PENDING


def test_an_id_that_came_round_again(slurm: Path) -> None:
    """Two records of one id are two jobs: the exit record of the old one is not the new one's."""
    old, new = job("7", minute=1), job("7", minute=2)
    old.jobdir.mkdir()
    (old.jobdir / "7_exit.json").write_text('{"code": 0, "time": "2026-11-29T12:01:30+00:00"}')
    statuses = refresh([old, new], read_index())
    assert statuses[old].state is State.COMPLETED
    assert statuses[new].state is State.UNKNOWN


def test_a_state_folder_that_cannot_be_written_spoils_no_answer(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note is lost, the answer is given."""
    record = job("7")
    index = read_index()
    place = Path("file")
    place.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(place.absolute()))
    (slurm / "rows").write_text("7|RUNNING|None|x\n")
    assert refresh([record], index)[record].state is State.RUNNING


def test_waiting_tells_of_the_unknown_once(slurm: Path) -> None:
    """A wait without an end in sight says so, and gives up at its time limit."""
    record = job("7")
    told: list[str] = []
    assert not list(wait_for([record], read_index(), timeout_s=0.5, waits=Waits(told.append)))
    (text,) = told
    assert text.startswith("7 is UNKNOWN (not in the queue, no exit record")
    assert text.endswith("; still waiting")


def said(rows: Sequence[tuple[State, str | None]], start: str | None = None, age_s: float = 11_100) -> list[str]:
    """Return what is said of a job of that age in seconds that is seen like this, one after the other."""
    submitted = datetime.now(timezone.utc) - timedelta(seconds=age_s)
    record = msgspec.structs.replace(job("7"), submitted=submitted.isoformat())
    told: list[str] = []
    waits = Waits(told.append)
    for state, reason in rows:
        waits.see(record, Status(state, reason=reason))
        waits.say(lambda _: start)
    return told


def test_what_a_job_waits_for_is_told_when_it_changes() -> None:
    """State, the scheduler's reason, since when, and when it will start; a count in PBS's reason is no change."""
    free = "Not Running: Insufficient amount of resource: ngpus (R: 8 A: {} T: 16)"
    assert said(
        [(State.PENDING, "Priority"), (State.PENDING, "Priority"), (State.PENDING, "Resources"), (State.RUNNING, None)],
        "2026-12-01 04:00:00",
    ) == [
        "job 7 waits: PENDING (Priority), submitted 3h 5m ago, expected to start 2026-12-01 04:00:00",
        "job 7 waits: PENDING (Resources), submitted 3h 5m ago, expected to start 2026-12-01 04:00:00",
        "job 7 is RUNNING",
    ]
    assert len(said([(State.PENDING, free.format(count)) for count in (0, 4, 2)])) == 1
    assert said([(State.PENDING, None)]) == ["job 7 waits: PENDING, submitted 3h 5m ago"]
    assert said([(State.PENDING, "JobHeldUser")]) == ["job 7 is PENDING (JobHeldUser): it is held until hpcjob release"]


def test_many_jobs_that_wait_for_the_same_are_one_line() -> None:
    """And the scheduler is not asked about each of them: when they will start."""
    told: list[str] = []
    waits = Waits(told.append)

    def start(record: Record) -> str | None:
        raise AssertionError(record)

    for number in range(300):
        waits.see(job(str(number)), Status(State.PENDING, reason="Priority"))
    waits.say(start)
    assert told == ["300 jobs wait: PENDING (Priority): 0, 1, 2, 3, 4, 5, 6, 7 and 292 more"]
    waits.say(start)
    assert len(told) == 1


def test_nothing_is_told_of_a_job_that_runs_or_came_just_now() -> None:
    """Every job waits for a moment, and its log tells of one that runs."""
    assert not said([(State.RUNNING, None), (State.COMPLETING, None)])
    assert not said([(State.PENDING, "None")], age_s=0)


def test_a_job_that_surely_never_starts_is_not_waited_for(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are; a job that a limit holds back, which somebody may change, and one that Slurm will cancel, too."""
    job("7", attached=True)
    job("8")
    (slurm / "rows").write_text("7|PENDING|DependencyNeverSatisfied|x\n8|COMPLETED|None|x\n")
    assert main(["wait", "7", "8"]) == 75
    output = capsys.readouterr()
    assert output.out == "8  job8  COMPLETED\n"
    assert output.err.splitlines() == [
        "hpcjob: job 7 is PENDING (DependencyNeverSatisfied): it comes after a job that did not end as required, and "
        "cannot start like this; cancel it, and look at that job first (hpcjob explain)",
        "hpcjob: no use to wait for what never starts as it is: 7",
        "        hpcjob cancel 7",
    ]
    for name, reason in (("7", "PartitionNodeLimit"), ("9", "DependencyNeverSatisfied")):
        (slurm / "rows").write_text(f"{name}|PENDING|{reason}|x\n")
        told: list[str] = []
        waits = Waits(told.append)
        assert not list(wait_for([job(name)], read_index(), timeout_s=0, waits=waits))
        assert not waits.hopeless
        assert [text.partition(":")[0] for text in told] == [f"job {name} is PENDING ({reason})"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (3600, "1h"), (3661, "1h 1m"), (90_000, "1d 1h"), (86_400, "1d")],
)
def test_ages(seconds: float, text: str) -> None:
    """The two largest units."""
    assert ago(seconds) == text
