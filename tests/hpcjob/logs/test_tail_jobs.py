"""``hpcjob tail`` of a recorded job: which one is meant, and which files are its own."""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
from pathlib import Path

import pytest

from hpcjob.cli import main
from hpcjob.logs import waiting
from hpcjob.logs.filters import LineFilter
from hpcjob.logs.output import open_output
from hpcjob.logs.tail import Request, show
from hpcjob.logs.target import Target, resolve
from hpcjob.states import State
from hpcjob.tracking.index import append
from hpcjob.tracking.records import Record
from hpcjob.tracking.status import Status

from .conftest import tail


def test_unknown_job_names_near_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped file name is answered with the files that are there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "training.log").write_text("x\n")
    assert main(["tail", "trainig.log"]) == 2
    error = capsys.readouterr().err
    assert "trainig.log" in error
    assert "training.log" in error.replace("trainig.log", "")


@pytest.fixture
def recorded(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """The job directory as that of job 12, named 日本, submitted to this machine, which has ended with exit code 0."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    exit_record = {"code": 0, "signal": None, "time": "2026-01-01T00:00:00+00:00", "host": "node01", "step": None}
    (folder / "12_exit.json").write_text(json.dumps(exit_record))
    record = Record(
        profile="local",
        scheduler="local",
        server=socket.gethostname(),
        id="12",
        submitted="2026-01-01T00:00:00+00:00",
        name="日本",
        directory=str(folder),
    )
    append(record)
    return record


@pytest.mark.parametrize("name", ["12", "日本", "latest", None])
def test_job_by_id_name_or_latest(capsys: pytest.CaptureFixture[str], recorded: Record, name: str | None) -> None:
    """A recorded job is found from anywhere, without a word the newest."""
    rows = tail(capsys, *([name] if name else []), "--loss", "-n", 1)
    assert rows[-1].split()[0] == "11.000000"


def test_files_of_other_jobs_in_the_directory_are_left_out(
    capsys: pytest.CaptureFixture[str], recorded: Record, folder: Path
) -> None:
    """Two submissions may share a directory; a job's errors are its own."""
    (folder / "13_sched.out").write_text("=>> PBS: job killed: mem 2kb exceeded limit 1kb\n")
    assert "13_sched.out" not in "\n".join(tail(capsys, "12", "--errors"))
    assert "13_sched.out" in "\n".join(tail(capsys, folder, "--errors"))


def test_follow_of_an_ended_job_ends(capsys: pytest.CaptureFixture[str], recorded: Record, folder: Path) -> None:
    """-f on a job that is over shows its last lines, an unfinished one too, and returns."""
    (folder / "12_sched.out").write_text("1\n2\nunfinished")
    assert tail(capsys, "12", "-f", "--raw", "-n", 2)[-2:] == ["2", "unfinished"]


def test_no_log_yet(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A directory without logs is no error."""
    assert main(["tail", str(tmp_path)]) == 0
    assert "no log yet" in capsys.readouterr().err


def test_a_scheduler_that_does_not_answer_is_said(
    recorded: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the scheduler is asked and silent, one line says so; an answer in time leaves no line."""
    told = threading.Event()
    monkeypatch.setattr(waiting, "PATIENCE_S", 3600.0)
    target = resolve(["12"])
    assert target.ended()
    assert capsys.readouterr().err == ""

    def slow(*_: object) -> bool:
        return told.wait(240)

    def tell(text: str) -> None:
        print(text, file=sys.stderr)
        told.set()

    monkeypatch.setattr(waiting, "tell", tell)
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    monkeypatch.setattr("hpcjob.tracking.job_ended", slow)
    assert resolve(["12"]).ended()
    assert "the scheduler has not answered yet" in capsys.readouterr().err


def test_follow_of_a_job_that_ends_without_a_log_says_how(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Cancelled while it waited: there was nothing to show, and never will be."""
    states = iter([Status(State.PENDING), Status(State.CANCELLED, reason="DependencyNeverSatisfied")])
    target = Target(directory=tmp_path, job_id="12", ended=lambda: True, status=lambda: next(states))
    show(target, Request("digest", LineFilter(), follow=True), open_output(io.StringIO(), json=False))
    assert capsys.readouterr().err.splitlines() == [
        f"hpcjob tail: no log yet in {tmp_path}; waiting",
        f"hpcjob tail: no log yet in {tmp_path}; the job is CANCELLED (DependencyNeverSatisfied)",
    ]
    (tmp_path / "12_sched.out").touch()  # on this machine it is there before the job starts
    states = iter([Status(State.CANCELLED, reason="afterok:11 was not satisfied")])
    target = Target(directory=tmp_path, job_id="12", ended=lambda: True, status=lambda: next(states))
    show(target, Request("digest", LineFilter(), follow=True), open_output(io.StringIO(), json=False))
    empty = f"hpcjob tail: {tmp_path / '12_sched.out'}: empty; the job is CANCELLED (afterok:11 was not satisfied)"
    assert capsys.readouterr().err.splitlines() == [empty]
