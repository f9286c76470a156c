"""Child commands: bounded, clean environment, words kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcjob.profile import SchedulerName
from hpcjob.schedulers import commands
from hpcjob.schedulers.base import JobRef
from hpcjob.schedulers.command_scheduler import CommandScheduler
from hpcjob.schedulers.registry import scheduler_of
from tests.hpcjob.jobs import fake_command, with_path


def test_environment_of_an_allocation_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options and layout of an allocation do not leak into a query or a submission; where a configuration lies does."""
    monkeypatch.setenv("SQUEUE_FORMAT", "%all")
    monkeypatch.setenv("SBATCH_ACCOUNT", "other")
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    monkeypatch.setenv("SLURM_CLUSTERS", "gamma")
    monkeypatch.setenv("PBS_DPREFIX", "#XX")
    monkeypatch.setenv("PBS_CONF_FILE", "/etc/pbs.conf")
    monkeypatch.setenv("SGE_TASK_ID", "3")
    monkeypatch.setenv("SGE_ROOT", "/opt/sge")
    monkeypatch.setenv("PJM_JOBID", "7")
    monkeypatch.setenv("LC_ALL", "ja_JP.UTF-8")
    told = commands.run(["env"], timeout_s=240).stdout.splitlines()
    names = {line.partition("=")[0] for line in told}
    assert {"SLURM_CONF", "SLURM_CLUSTERS", "PBS_CONF_FILE", "SGE_ROOT", "PATH"} <= names
    assert not names & {"SQUEUE_FORMAT", "SBATCH_ACCOUNT", "SLURM_CPU_BIND", "SLURM_JOB_ID"}
    assert not names & {"PBS_DPREFIX", "SGE_TASK_ID", "PJM_JOBID"}
    assert "LC_ALL=C" in told
    kept = commands.run(["env"], timeout_s=240, translate=True).stdout.splitlines()
    assert "LC_ALL=ja_JP.UTF-8" in kept, "a submission hands its locale to the job"


def test_broken_bytes_and_both_streams() -> None:
    """Output that is no UTF-8 is replaced; errors come first in what it said."""
    done = commands.run(["bash", "-c", r"printf 'a\xffb\n'; echo bad >&2; echo bad >&2; exit 3"], timeout_s=240)
    assert (done.code, done.stdout, done.said) == (3, "a\ufffdb\n", "bad")


def test_a_time_out_ends_the_command_and_its_children(tmp_path: Path) -> None:
    """A wrapper's child that holds the pipe does not hold us, and ends with it."""
    os.mkfifo(tmp_path / "held")
    reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(commands.CommandTimeoutError, match="no answer in"):
        commands.run(["bash", "-c", f"sleep 600 3>{tmp_path}/held & wait"], timeout_s=0.3)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "its end comes when no process has it open for writing"
    os.close(reader)


def test_who_waits_at_a_terminal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once for each command, and what it prints then is whole; where nobody reads along nothing is said."""
    (tmp_path / "go").mkdir()
    monkeypatch.setattr(commands, "PATIENCE_S", 0.01)
    told = commands.tell
    monkeypatch.setattr(commands, "tell", lambda text: [told(text), (tmp_path / "go").rmdir()])
    slow = ["bash", "-c", f"echo first; while [[ -e {tmp_path}/go ]]; do read -rt 0.1 <> <(:); done; echo last"]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert commands.run(slow, timeout_s=61).stdout == "first\nlast\n"
    assert commands.run(["sleep", "0.1"], timeout_s=61, name="bash").code == 0
    assert capsys.readouterr().err == "hpcjob: bash has not answered for 0.01 s; waiting, at most 61 s\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    assert commands.run(["sleep", "0.1"], timeout_s=61).code == 0
    assert capsys.readouterr().err == ""


def test_missing_and_forbidden_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such command, or one that may not be executed, is one clear line."""
    fake_command(tmp_path / "bin", "no-such-qstat", "")
    (tmp_path / "bin" / "no-such-qstat").chmod(0o644)
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    with pytest.raises(commands.CommandMissingError, match="no-such-qstat"):
        commands.run(["no-such-qstat"], timeout_s=240)
    with pytest.raises(commands.CommandMissingError, match="no such command"):
        commands.run(["no-such-command-here"], timeout_s=240)


def test_a_commands_own_name_is_not_repeated() -> None:
    """The message begins with the command's name already."""
    told = "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid\n"
    said = commands.Finished(("/usr/bin/sbatch",), 1, "", told).said
    assert said == "invalid partition specified: nope; Batch job submission failed: Invalid"


def test_long_words_are_cut() -> None:
    """A stack dump does not fill the terminal."""
    assert len(commands.Finished(("sbatch",), 1, "", "x" * 100_000).said) < 700


@pytest.mark.parametrize(
    ("scheduler", "said", "expected"),
    [
        ("slurm", "2026-12-01T04:00:00\n", "2026-12-01 04:00:00"),
        ("slurm", "N/A\n2026-12-02T04:00:00\n2026-12-01T04:00:00\n", "2026-12-01 04:00:00"),  # elements of an array
        ("slurm", "N/A\n", None),
        ("slurm", "", None),
        ("pbs", "Job Id: 12.pbs1\n    job_state = Q\n    estimated.start_time = Sat Mar 22 10:00:00 2008\n\n",
         "Sat Mar 22 10:00:00 2008"),
        ("pbs", "Job Id: 12.pbs1\n    job_state = Q\n\n", None),
        ("pjm", "12  run  QUEUED  gg53  short-a  (10/30 18:00)<  00:00:00  -  1  8\n", "10/30 18:00"),
        ("pjm", "12  run  QUEUED  gg53  short-a  -  00:00:00  -  1  8\n", None),
    ],
)  # fmt: skip
def test_when_a_job_is_expected_to_start(scheduler: SchedulerName, said: str, expected: str | None) -> None:
    """As squeue(1) --start, pbs_job_attributes(7B) and the table of a site's pjstat tell it."""
    asked = scheduler_of(scheduler)
    assert isinstance(asked, CommandScheduler)
    assert asked.parse_start(said) == expected


def test_no_answer_to_when_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is asked beside another, and its answer is a help, no more."""
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    ref = JobRef("7", tmp_path)
    fake_command(tmp_path / "bin", "squeue", "echo 2026-12-01T04:00:00")
    assert scheduler_of("slurm").expected_start(ref) == "2026-12-01 04:00:00"
    fake_command(tmp_path / "bin", "squeue", "echo 2026-12-01T04:00:00; exit 1")
    assert scheduler_of("slurm").expected_start(ref) is None
    assert scheduler_of("gridengine").expected_start(ref) is None
    assert scheduler_of("local").expected_start(ref) is None
