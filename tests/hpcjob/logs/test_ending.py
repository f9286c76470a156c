"""Jobs that ended as they were asked to, or were ended from outside: their own files decide, not the launchers."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli import main
from hpcjob.states import State
from hpcjob.tracking.index import append
from hpcjob.tracking.records import Change, Record

AFTERMATH = """\
 iteration       40/     100 | elapsed time per iteration (ms): 60000.0 | lm loss: 7.123456E+00 |
W1016 10:00:00.000 1 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 1234 closing signal SIGTERM
E1016 10:00:00.000 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: 1
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
rank.sh FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_10:00:00
  host      : node02
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 1234)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
hpcjob: node node02: its ranks ended with code 1
hpcjob: 2026-01-01T10:00:01+00:00 step train ended with code {code}
"""


def job(folder: Path, log: str, code: int | None, *, signal: str | None = None, **outcome: Any) -> Path:
    """Make a job folder as a script and a trainer leave it."""
    folder.mkdir(exist_ok=True)
    (folder / "12_job.out").write_text(log)
    if code is not None:
        record = {
            "code": code,
            "signal": signal,
            "time": "2026-01-01T10:00:02+00:00",
            "host": "node01",
            "step": "train",
        }
        (folder / "12_exit.json").write_text(json.dumps(record))
    if outcome:
        (folder / "outcome.json").write_text(json.dumps({"message": None, **outcome}))
    return folder


def explain(capsys: pytest.CaptureFixture[str], job: Path | str) -> dict[str, Any]:
    code = main(["explain", str(job), "--json"])
    verdict: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert verdict["code"] == code
    return verdict


@pytest.mark.parametrize(
    ("code", "outcome", "verdict_code", "cause"),
    [
        (86, "stopped", 66, "stopped on request, saved iteration 40"),
        (85, "saved_for_walltime", 65, "stopped before the walltime was over, saved iteration 40"),
        (None, "stopped", 66, "stopped on request, saved iteration 40"),
    ],
)
@pytest.mark.parametrize("signal", [None, "TERM"])
def test_a_clean_stop(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    code: int | None,
    outcome: str,
    verdict_code: int,
    cause: str,
    signal: str | None,
) -> None:
    """Class and cause come from the files; no rank is blamed, no follower counted, nothing lost."""
    log = AFTERMATH.format(code=code or 86)
    folder = job(tmp_path / "停止", log, code, signal=signal, outcome=outcome, iteration=40, checkpoint="ckpt")
    verdict = explain(capsys, folder)
    assert (verdict["code"], verdict["cause"], verdict["last_checkpoint"]) == (verdict_code, cause, 40)
    assert not {"rank", "host", "ranks", "followers", "others", "exclude", "cost_gpu_hours"} & verdict.keys()
    assert "Submit it again" in verdict["fix"]
    assert verdict["evidence"][0]["source"].endswith("outcome.json")

    assert main(["tail", str(folder), "--errors"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == f"  ended        {cause}"
    assert not [row for row in rows if row.startswith("!")]
    assert main(["tail", str(folder), "--errors", "--json"]) == 0
    events = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert not [event for event in events if event.get("role") in ("cause", "symptom")]


def test_a_stop_without_checkpoint_and_who_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing saved is said, with what it cost; the scheduler's word for the end gives the class."""
    preempted = "slurmstepd: error: *** JOB 12 ON node07 CANCELLED AT 2026-01-01T10:00:00 DUE TO PREEMPTION ***\n"
    start = "node01:1:1 [0] NCCL INFO comm 0x7f rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE\n"
    log = start + AFTERMATH.format(code=86) + preempted
    verdict = explain(capsys, job(tmp_path, log, 86, outcome="stopped", iteration=40, checkpoint=None))
    assert verdict["code"] == 66
    assert verdict["cause"] == (
        "stopped on request at iteration 40, without a checkpoint: the job was preempted (Slurm)"
    )
    assert verdict["cost_gpu_hours"] == pytest.approx(40 * 60 / 3600 * 2, abs=1e-3)


@pytest.mark.parametrize("text", ["", '{"outcome": "gone"}', "\0\0", '{"outcome": "stop'])
def test_a_damaged_outcome_tells_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    """The exit record alone still tells a clean stop; without either the log is read as ever."""
    folder = job(tmp_path, AFTERMATH.format(code=86), 86)
    (folder / "outcome.json").write_text(text)
    assert explain(capsys, folder)["cause"] == "stopped on request"
    (folder / "12_exit.json").write_text("{")
    assert explain(capsys, folder)["code"] == 76


def test_a_failure_after_an_older_outcome_is_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The exit record goes before the outcome: another step failed after the trainer had stopped."""
    log = "Traceback (most recent call last):\n  File 'x'\nValueError: bad\n"
    verdict = explain(capsys, job(tmp_path, log, 1, outcome="stopped", iteration=4, checkpoint=None))
    assert (verdict["code"], verdict["cause"]) == (76, "ValueError: bad")


KILLED = AFTERMATH.format(code=-9)
OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.mark.parametrize(
    ("log", "code", "cause"),
    [("working\n", 66, "cancelled"), (KILLED, 66, "cancelled"), (OOM + KILLED, 68, "GPU memory is exhausted")],
)
def test_a_job_ended_by_a_signal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: str, code: int, cause: str
) -> None:
    """It was ended from outside, unless it had an error of its own before."""
    verdict = explain(capsys, job(tmp_path, log, 143, signal="TERM"))
    assert verdict["code"] == code
    assert cause in verdict["cause"]
    assert verdict["fix"]


@pytest.mark.parametrize(
    ("state", "code", "cause"),
    [
        (State.CANCELLED, 66, "the job was cancelled"),
        (State.TIMEOUT, 65, "the scheduler ended the job at its walltime"),
        (State.OUT_OF_MEMORY, 67, "the scheduler reports that host memory was exhausted"),
    ],
)
@pytest.mark.parametrize("logs", [True, False])
def test_the_schedulers_state(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: State,
    code: int,
    cause: str,
    logs: bool,
) -> None:
    """Where the script left no record, or never ran, what the scheduler was last seen to say decides."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = job(tmp_path / "job", "working\n", None)
    if not logs:
        (folder / "12_job.out").unlink()
    record = Record(
        profile="lab",
        scheduler="slurm",
        server=socket.gethostname(),
        id="12",
        submitted="2026-01-01T00:00:00+00:00",
        name="実験",
        directory=str(folder),
    )
    append(record)
    append(record.change(state))
    verdict = explain(capsys, "12")
    assert (verdict["code"], verdict["cause"]) == (code, cause)


def recorded(folder: Path, patch: pytest.MonkeyPatch, *changes: Any, **keys: Any) -> Record:
    """Record job 12 of a Slurm, with what was seen of it."""
    patch.setenv("XDG_STATE_HOME", str(folder.parent / f"state of {folder.name}"))
    record = Record(
        profile="lab",
        scheduler="slurm",
        server="",
        id="12",
        submitted="2026-01-01T00:00:00+00:00",
        name="実験",
        directory=str(folder),
        nodes=1,
        walltime_s=60,
        **keys,
    )
    append(record)
    for change in changes:
        append(Change(profile="lab", server="", id="12", submitted=record.submitted, time=record.submitted, **change))
    return record


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (
            "afterok:11 was not satisfied: it ended with code 3",
            "the job never started: afterok:11 was not satisfied: it ended with code 3",
        ),
        (None, "the job never started: cancelled, and it came after afterok:11, afterany:10"),
    ],
)
def test_a_job_that_never_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str | None, cause: str
) -> None:
    """Of one that came after others the cause is there, and the fix names where to look."""
    seen = {"state": State.CANCELLED, "reason": reason}
    recorded(tmp_path, monkeypatch, seen, after=["afterok:11", "afterany:10"])
    verdict = explain(capsys, "12")
    assert (verdict["code"], verdict["cause"]) == (66, cause)
    look = "hpcjob explain 11" if reason else "hpcjob explain 11 and hpcjob explain 10"
    assert verdict["fix"] == f"Look at what it came after: {look}. Then submit it again."
    (tmp_path / "12_job.out").write_text("working\n")
    assert explain(capsys, "12")["cause"] == "the job was cancelled"


@pytest.mark.parametrize("name", ["TERM", "HUP", "ALRM", "PIPE"])
def test_signals_from_outside(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    """Its script's record has the name of any signal that the script heeds."""
    verdict = explain(capsys, job(tmp_path, "working\n", 128 + signal.Signals[f"SIG{name}"], signal=name))
    cause = f"ended from outside by signal {name}: cancelled, or stopped by the scheduler"
    assert (verdict["code"], verdict["cause"]) == (66, cause)


def test_a_job_killed_by_kill(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor's record says so, or its scheduler; a step's shell only tells the code."""
    killed = "the job was killed from outside by signal KILL: by hand, or by its node, where host memory was exhausted"
    verdict = explain(capsys, job(tmp_path / "a", "working\n", 137, signal="KILL"))
    assert (verdict["code"], verdict["cause"]) == (66, killed)
    recorded(tmp_path, monkeypatch, {"state": State.FAILED, "exit_code": 137, "reason": "killed by signal 9"})
    assert explain(capsys, "12")["cause"] == killed
    verdict = explain(capsys, job(tmp_path / "b", "working\n", 137))
    assert verdict["cause"] == (
        "not known: the job ended with exit code 137, that of signal 9 (SIGKILL), and no line of its log shows why"
    )
    assert verdict["fix"].startswith("Killed: host memory most likely")
    assert explain(capsys, job(tmp_path / "c", OOM, 137, signal="KILL"))["code"] == 68


def test_a_failure_without_a_record(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the scheduler says of it is told, not that nothing was found; and a folder that is gone is named."""
    recorded(tmp_path, monkeypatch, {"state": State.FAILED, "exit_code": 1, "reason": "a part of it failed"})
    verdict = explain(capsys, "12")
    assert verdict["code"] == 79
    assert verdict["cause"].startswith("not known: the job ended with state FAILED, exit code 1, a part of it failed")
    gone = recorded(tmp_path / "gone", monkeypatch, {"state": State.COMPLETED, "exit_code": 0})
    assert main(["explain", "12"]) == 0
    assert capsys.readouterr().err == f"hpcjob explain: {gone.directory} is gone, and the logs with it\n"


def queue(folder: Path, patch: pytest.MonkeyPatch, state: str, reason: str) -> None:
    """Let squeue tell of job 12."""
    command = folder / "bin" / "squeue"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f"#!/bin/sh\necho 'JOBID|STATE|REASON|NAME'\necho '12|{state}|{reason}|x'\n")
    command.chmod(0o755)
    patch.setenv("PATH", str(command.parent), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("reason", "why", "todo"),
    [
        ("PartitionNodeLimit", "asks for more nodes than its partition allows", "fewer --nodes"),
        ("PartitionTimeLimit", "asks for a longer walltime", "shorter --walltime"),
        ("QOSMaxWallDurationPerJobLimit", "asks for a longer walltime", "shorter --walltime"),
        ("AssocMaxNodePerJobLimit", "asks for more than its account or QOS allows one job", "less"),
        ("BadConstraints", "asks for what no node has", "constraint"),
    ],
)
def test_a_job_that_can_never_start(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    why: str,
    todo: str,
) -> None:
    """It is told while it waits, by each command, and after it was cancelled: to submit it again would not help."""
    recorded(tmp_path, monkeypatch)
    queue(tmp_path, monkeypatch, "PENDING", reason)
    verdict = explain(capsys, "12")
    assert verdict["code"] == 65
    assert verdict["cause"].startswith(f"the job cannot start: it {why}")
    assert verdict["cause"].endswith(f"({reason})")
    assert verdict["fix"].startswith("Cancel it, ")
    assert todo in verdict["fix"]
    assert main(["tail", "12"]) == 0
    assert f"the job is PENDING ({reason}): it {why}" in capsys.readouterr().err
    assert main(["status", "12"]) == 0
    assert "cannot start" in capsys.readouterr().out
    queue(tmp_path, monkeypatch, "CANCELLED", "None")
    verdict = explain(capsys, "12")
    assert verdict["cause"].startswith(f"the job was cancelled; it could never have started: it {why}")
    assert verdict["fix"].startswith("Next time ")
    (tmp_path / "12_job.out").write_text("working\n")
    assert explain(capsys, "12")["cause"] == "the job was cancelled"


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        ("PENDING", "Resources", "; the job is PENDING (Resources)\n"),
        ("PENDING", "JobHeldUser", "; the job is PENDING (JobHeldUser): it is held until hpcjob release\n"),
        ("PENDING", "QOSMaxJobsPerUserLimit", "; the job is PENDING (QOSMaxJobsPerUserLimit)\n"),
        ("RUNNING", "None", "no log yet in {}\n"),
    ],
)
def test_a_job_that_waits(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    reason: str,
    told: str,
) -> None:
    """A limit of all a user's jobs together comes by itself; a hold does not."""
    recorded(tmp_path, monkeypatch)
    queue(tmp_path, monkeypatch, state, reason)
    for command in ("tail", "explain"):
        assert main([command, "12"]) == 0
        assert capsys.readouterr().err.endswith(told.format(tmp_path))


@pytest.mark.parametrize(
    ("iteration", "checkpoint", "where"),
    [(0, None, ", at iteration 0, without a checkpoint"), (40, "ckpt", ", saved iteration 40")],
)
def test_a_stop_that_the_walltime_asked_for(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    iteration: int,
    checkpoint: str | None,
    where: str,
) -> None:
    """Schedulers begin that end by SIGTERM, which a trainer takes as a request; nobody else has asked."""
    recorded(tmp_path, monkeypatch, {"state": State.TIMEOUT, "exit_code": 86})
    log = AFTERMATH.format(code=86)
    job(tmp_path, log, 86, signal="TERM", outcome="stopped", iteration=iteration, checkpoint=checkpoint)
    verdict = explain(capsys, "12")
    assert (verdict["code"], verdict["cause"]) == (65, f"the scheduler ended the job at its walltime{where}")
    assert main(["status", "12"]) == 0
    assert "request" not in capsys.readouterr().out


def test_a_job_that_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That nothing was found so far is no word on how it ends."""
    recorded(tmp_path, monkeypatch)
    queue(tmp_path, monkeypatch, "RUNNING", "None")
    (tmp_path / "12_job.out").write_text("working\n")
    verdict = explain(capsys, "12")
    assert verdict["code"] == 0
    assert verdict["cause"].startswith("the job is RUNNING; so far no error")
