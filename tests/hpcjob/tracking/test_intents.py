"""Submissions that were killed between the start of the job and its record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcjob.cli import main
from hpcjob.tracking.index import read_index, state_dir
from tests.hpcjob.jobs import calls, fake_command, with_path

ROOT = Path(__file__).parents[3]
HEADER = "echo 'JOBID|COMMENT|COMMAND'"

KILLED_BEFORE_THE_RECORD = """
import os, signal, sys
from hpcjob.cli import main
from hpcjob.tracking import submission
submission.append = lambda record: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""
KILLED_BEFORE_THE_ANSWER = """
import os, signal, subprocess, sys
from hpcjob.cli import main
from hpcjob.schedulers import local
def start(argv, capture_output, timeout, check, **rest):
    subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **rest)
    os.kill(os.getpid(), signal.SIGKILL)
local.subprocess = type("fake", (), {"run": start, "DEVNULL": subprocess.DEVNULL})
main(sys.argv[1:])
"""


def killed_submit(program: str, here: Path, profile: str, command: str) -> None:
    """Submit a job by ``program``, which does not live to record it."""
    job = here / "a.yml"
    job.write_text(json.dumps({"name": "little", "kind": "cpu", "command": ["bash", "-c", command]}))
    done = subprocess.run(
        [sys.executable, "-c", program, "submit", str(job), "-p", profile],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def looked(capfd: pytest.CaptureFixture[str]) -> str:
    """What ``hpcjob list`` notes on stderr."""
    assert main(["list"]) == 0
    return "".join(line for line in capfd.readouterr().err.splitlines(True) if ": note: " in line)


@pytest.mark.parametrize("program", [KILLED_BEFORE_THE_RECORD, KILLED_BEFORE_THE_ANSWER])
def test_a_local_job_whose_submission_was_killed_is_tracked(
    program: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It runs to its end, the next command finds it, once, and it is ``latest``."""
    killed_submit(program, here, "local", "exit 7")
    assert read_index().records == []
    said = ""
    while not said:  # its supervisor may have to write it down yet
        said = looked(capfd)
    (record,) = read_index().records
    assert said == f"hpcjob: note: a submission of 'little' was broken off; its job {record.id} is recorded now\n"
    assert looked(capfd) == ""
    assert main(["wait", "latest"]) == 7


def test_the_next_submission_may_come_after_one_that_was_killed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """``latest`` is the job that runs, for ``--after`` and for ``tail`` as for ``list``."""
    killed_submit(KILLED_BEFORE_THE_RECORD, here, "local", "true")
    assert main(["submit", str(here / "a.yml"), "-p", "local", "--after", "latest"]) == 0
    second, first = read_index().records
    assert "is recorded now" in capfd.readouterr().err
    killed_submit(KILLED_BEFORE_THE_RECORD, here, "local", "echo hello")
    assert main(["tail", "latest"]) == 0
    third = read_index().records[0]
    assert third not in (first, second)
    assert main(["wait"]) == 0


SBATCH = "kill -9 $PPID; echo 4711"


def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squeue: str) -> None:
    """Put an sbatch that kills who submits, and a squeue, first on PATH."""
    profiles = tmp_path / "here" / "cluster_profiles"
    profiles.mkdir()
    (profiles / "bare.yml").write_text("{schema: 1, name: bare, extends: lab, paths: {not_shared: []}}")
    bin_ = tmp_path / "bin"
    fake_command(bin_, "sbatch", SBATCH)
    fake_command(bin_, "squeue", squeue.replace("BIN", str(bin_)))
    fake_command(bin_, "sacct", "exit 1")
    monkeypatch.setenv("PATH", with_path(bin_))


PLAIN = "import sys; from hpcjob.cli import main; main(sys.argv[1:])"


def test_a_job_in_a_queue_is_found_by_its_mark(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a lost answer is looked up."""
    squeue = f'{HEADER}; sed -n "s/.*--comment=\\([^ ]*\\) .*/4711|\\1|x/p" BIN/sbatch.calls'
    cluster(tmp_path, monkeypatch, squeue)
    killed_submit(PLAIN, here, "bare", "true")
    assert "its job 4711 is recorded now" in looked(capfd)
    assert [record.id for record in read_index().records] == ["4711"]


def test_a_job_that_is_not_in_the_queue_is_given_up_after_a_while(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """At first it may still come; a minute later that is said once. A queue that does not answer says nothing."""
    cluster(tmp_path, monkeypatch, HEADER)
    killed_submit(PLAIN, here, "bare", "true")
    assert "broken off" not in looked(capfd)
    (path,) = state_dir().glob("submitting/*.json")
    intent = json.loads(path.read_text())
    intent["record"]["submitted"] = (datetime.now(timezone.utc) - timedelta(seconds=61)).isoformat()
    path.write_text(json.dumps(intent))
    fake_command(tmp_path / "bin", "squeue", "echo down >&2; exit 1")
    assert "whether its job exists is not known: squeue: down" in looked(capfd)
    second = path.with_name("second.json")
    second.write_text(path.read_text())
    (tmp_path / "bin" / "squeue.calls").unlink()
    assert looked(capfd).count("is not known: squeue: down") == 2
    assert len(calls(tmp_path / "bin", "squeue")) == 1, "who does not answer is asked once"
    second.unlink()
    fake_command(tmp_path / "bin", "squeue", HEADER)
    assert "no job of it is known" in looked(capfd)
    assert "broken off" not in looked(capfd)


def test_a_submission_that_is_refused_or_recorded_leaves_no_intent(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there while sbatch runs, and only then."""
    seen = tmp_path / "seen"
    cluster(tmp_path, monkeypatch, HEADER)
    job = here / "a.yml"
    job.write_text(json.dumps({"name": "little", "kind": "cpu", "command": ["true"]}))
    for body, code in ((f"ls {state_dir()}/submitting >{seen}; echo 4711", 0), ("exit 3", 1)):
        fake_command(tmp_path / "bin", "sbatch", body)
        assert main(["submit", str(job), "-p", "bare"]) == code
        assert list(state_dir().glob("submitting/*")) == []
    assert seen.read_text().startswith("hpcjob-")
