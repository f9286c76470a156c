"""The commands about jobs, through the command line, with real jobs of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hpcjob.cli import main
from hpcjob.cli.choosing import obeyed
from hpcjob.cli.group import cli
from hpcjob.errors import SchedulerError
from hpcjob.tracking.index import Index, read_index
from hpcjob.tracking.records import Record
from tests.hpcjob.jobs import calls, fake_command, submit_local, with_path

ROOT = Path(__file__).parents[3]


def job_file(path: Path, command: str, name: str = "little") -> str:
    """Write the file of a job that runs ``command`` in bash, without ranks."""
    path.write_text(json.dumps({"name": name, "kind": "cpu", "command": ["bash", "-c", command]}))
    return str(path)


def hpcjob(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "hpcjob", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("code", [0, 1, 85])
def test_submit_and_follow(code: int, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The log comes whole, the exit code is the job's."""
    job = job_file(here / "仕事.yml", f"echo こんにちは; echo last; exit {code}")
    assert main(["submit", job, "--profile", "local", "--follow"]) == code
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert "こんにちは" in lines
    assert "last" in lines
    (record,) = read_index().records
    assert lines[0] == f"job {record.id}  little on local"
    assert f"hpcjob cancel {record.id}" in out
    state = {0: "COMPLETED", 1: "FAILED", 85: "TIMEOUT"}[code]
    assert f"job {record.id} {state}, exit code {code}" in err
    assert (f"why: hpcjob explain {record.id}\n" in err) == (code == 1), "85 is no failure"


def test_a_day_with_one_job(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """submit, status, list, show, cancel, wait: each finds the job and agrees on its state."""
    assert main(["submit", job_file(here / "a.yml", "sleep 60"), "-p", "local", "--json"]) == 0
    submitted = json.loads(capfd.readouterr().out)
    (record,) = read_index().records
    assert (submitted["id"], submitted["jobdir"]) == (record.id, record.directory)
    assert main(["status", "--json"]) == 0
    status = json.loads(capfd.readouterr().out)
    assert (status["id"], status["state"], status["exit_code"]) == (record.id, "RUNNING", None)
    assert main(["status"]) == 0
    header, row = capfd.readouterr().out.splitlines()
    assert header.split() == ["ID", "NAME", "PROFILE", "STATE", "AGE"]
    assert row.split()[:4] == [record.id, "little", "local", "RUNNING"]
    assert main(["cancel", "litt"]) == 0
    assert "cancelled, all its processes have ended" in capfd.readouterr().out
    assert main(["cancel", "latest"]) == 0
    assert "had ended before (CANCELLED)" in capfd.readouterr().out
    assert main(["wait", record.id]) == 143
    assert capfd.readouterr().out.strip() == f"{record.id}  little  CANCELLED  exit code 143"
    assert main(["status"]) == 0
    out, err = capfd.readouterr()
    assert not out
    assert "hpcjob list" in err
    assert main(["list", "--state", "timeout", "--state", "failed"]) == 0
    assert capfd.readouterr() == ("", "no job is TIMEOUT or FAILED\n")
    assert main(["list", "--state", "cancelled"]) == 0
    assert record.id in capfd.readouterr().out
    assert main(["show", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["exit_record"]["signal"] == "TERM"
    assert [seen["state"] for seen in shown["seen"]] == ["SUBMITTED", "RUNNING", "CANCELLED"]
    assert shown["script"] == f"{record.directory}/script.sh"
    assert shown["command"] == f"bash {record.directory}/script.sh"
    assert f"{record.id}_exit.json" in {file["name"] for file in shown["files"]}
    assert main(["show", record.id]) == 0
    out = capfd.readouterr().out
    for words in ("state        CANCELLED", "exit record  code=143", record.directory):
        assert words in out


def test_a_name_of_several_live_jobs_ends_none(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Their ids are told; of one that is left it is the name, though a newer one has ended; else the newest."""
    first, second, third = (submit_local("sleep 60", name="twin") for _ in range(3))
    assert main(["cancel", "twi"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("hpcjob: 3 jobs named 'twi' have not ended\n        say which by id: ")
    assert all(f"{one.id} (local, RUNNING, " in err for one in (first, second, third))
    assert main(["cancel", third.id, second.id]) == 0
    assert main(["cancel", "twin"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [third.id, second.id, first.id]
    assert all(line.endswith("twin  cancelled, all its processes have ended") for line in lines)
    assert main(["cancel", "twin"]) == 0
    assert capfd.readouterr().out.startswith(f"{third.id}  twin  had ended before")


def test_one_refusal_stops_no_other(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of several jobs that a scheduler refuses to hold each is told, and the others are held."""
    write_past(4)

    def order(record: Record, index: Index) -> str:
        if record.id in "12":
            raise SchedulerError(f"qhold: {record.id}: no")
        return "held"

    told = []
    with pytest.raises(SchedulerError, match="qhold: 2: no"):
        told.extend(record.id for record, _, _ in obeyed("0123", order))
    assert (told, capfd.readouterr().err) == (["0", "3"], "hpcjob: qhold: 1: no\n")


def test_forget(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A job whose state is not known leaves list, status and wait; one that runs only by force, and it goes on."""
    record = submit_local("sleep 60", name="kept")
    lost = submit_local("true", name="lost")
    assert main(["wait", lost.id]) == 0
    unknown = {"event": "submitted", "profile": "gone", "scheduler": "slurm", "server": "", "id": "77", "name": "old"}
    unknown |= {"submitted": "2026-01-01T00:00:00+00:00", "directory": str(here / "none"), "history": False}
    (here.parent / "state/hpcjob/gone@elsewhere.jsonl").write_text(json.dumps(unknown) + "\n")
    assert {one.id for one in read_index().records} == {record.id, lost.id, "77"}
    capfd.readouterr()
    assert main(["forget", record.id, lost.id]) == 2
    assert capfd.readouterr().err == (
        f"hpcjob: {record.id} (kept) is RUNNING\n"
        f"        hpcjob cancel {record.id} ends it; --force forgets it and lets it continue\n"
    )
    assert main(["forget", "77", lost.id]) == 0
    out = capfd.readouterr().out
    assert out.splitlines()[0] == f"77  old  forgotten; its files stay in {here / 'none'}"
    assert [one.id for one in read_index().records] == [record.id]
    assert Path(lost.directory, "script.sh").exists()
    assert main(["forget", record.id, "--force"]) == 0
    assert not read_index().records
    assert not read_index().damaged
    assert main(["attach", record.id, record.directory, "-p", "local"]) == 0
    assert main(["cancel", record.id]) == 0
    assert "cancelled, all its processes have ended" in capfd.readouterr().out


def test_an_element_is_not_forgotten_alone(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An array stands in the list as one job."""
    (here / "a.yml").write_text("kind: cpu\ncommand: ['true']\narray: 0-1\nname: many\n")
    assert main(["submit", "a.yml", "-p", "local", "--json"]) == 0
    job = json.loads(capfd.readouterr().out)["id"]
    assert main(["forget", f"{job}_1"]) == 2
    assert f"forget the array: hpcjob forget {job}" in capfd.readouterr().err
    assert main(["wait", job]) == 0
    assert main(["forget", "many"]) == 0


def test_dry_run_touches_nothing(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Script and command on stdout, still a valid script; no folder, no record."""
    job = job_file(here / "a.yml", "true")
    assert main(["submit", job, "-p", "local", "--dry-run"]) == 0
    assert "would be refused" not in capfd.readouterr().err
    assert main(["submit", job, "-p", "lab", "--nodes", "2", "--dry-run"]) == 2
    out, err = capfd.readouterr()
    assert "would be refused" in err, "the test's folder is below /tmp, which the profile does not share"
    assert out.startswith("#!/bin/bash\n#SBATCH ")
    assert out.splitlines()[-1].startswith("# to be submitted with: sbatch --parsable ")
    subprocess.run(["bash", "-n"], input=out, text=True, check=True)
    assert main(["submit", job, "-p", "lab", "--dry-run", "--json"]) == 2
    assert set(json.loads(capfd.readouterr().out)) == {"command", "script"}
    assert [path.name for path in here.iterdir()] == ["a.yml"]
    assert not read_index().records


def test_a_refused_submission_is_two_lines(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the scheduler said, what to do; exit code 1, nothing left."""
    fake_command(tmp_path / "bin", "sbatch", "echo 'sbatch: error: Invalid qos specification' >&2; exit 1")
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    assert main(["submit", job_file(here / "a.yml", "true"), "-p", "lab", "--set", "profile.paths.not_shared=[]"]) == 1
    err = capfd.readouterr().err.splitlines()
    assert err[-2] == "hpcjob: sbatch: Invalid qos specification"
    assert "QOS" in err[-1]
    assert [path.name for path in here.iterdir()] == ["a.yml"]
    assert len(calls(tmp_path / "bin", "sbatch")) == 1


def test_ctrl_c_leaves_the_job(here: Path) -> None:
    """Interrupted while following: the job goes on, the lines to type are shown, the code is 130."""
    job = job_file(here / "a.yml", "echo started; sleep 60")
    child = subprocess.Popen(
        [sys.executable, "-m", "hpcjob", "submit", job, "-p", "local", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == "started":
            break
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=240)
    (record,) = read_index().records
    assert child.returncode == 130
    assert f"hpcjob cancel {record.id}" in err
    assert "Traceback" not in err
    assert hpcjob("status", record.id, "--json").stdout.count('"RUNNING"') == 1


def test_wait_gives_up(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """--timeout: code 1, and which job is left; the job goes on."""
    record = submit_local("sleep 60", name="slow")
    assert main(["wait", "slow", "--timeout", "1s"]) == 75
    assert f"not ended after 1s: {record.id} (slow)" in capfd.readouterr().err
    assert main(["wait", "slow", "--timeout", "soon"]) == 2


def test_wait_for_several_gives_the_largest_code(capfd: pytest.CaptureFixture[str]) -> None:
    """Each is printed as it ends."""
    submit_local("exit 3", name="one")
    submit_local("exit 0", name="two")
    assert main(["wait", "--json"]) == 3
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {(job["name"], job["exit_code"]) for job in told} == {("one", 3), ("two", 0)}


@pytest.mark.parametrize("arguments", [["status"], ["list"]])
@pytest.mark.parametrize("count", [0, 1])
def test_what_is_known_is_told_without_heavy_imports(arguments: list[str], count: int) -> None:
    """No jobs, or only jobs that have ended: no submitit, numpy, jinja2 or yaml is imported."""
    if count:
        write_past(count)
    code = (
        f"import sys; from hpcjob.cli import main; main({arguments!r})\n"
        "heavy = {'submitit', 'numpy', 'jinja2', 'yaml', 'torch', 'rich', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def past(number: int) -> dict[str, str]:
    """Return the key of some job of the past."""
    time = f"2026-01-01T00:00:00.{number:06d}+00:00"
    return {"profile": "lab", "server": "", "id": str(number), "submitted": time}


def write_past(count: int) -> None:
    """Write an index of ``count`` jobs that have ended, as another login host of the cluster would have."""
    lines = []
    for number in range(count):
        told = {"scheduler": "slurm", "name": f"job{number % 50}", "directory": f"/work/{number}"}
        lines.append({"event": "submitted", **past(number), **told})
        seen = {"state": "COMPLETED", "time": past(number)["submitted"], "exit_code": 0}
        lines.append({"event": "state", **past(number), **seen})
    folder = Path(os.environ["XDG_STATE_HOME"]) / "hpcjob"
    folder.mkdir(parents=True)
    (folder / "lab@login7.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_ten_thousand_records(capfd: pytest.CaptureFixture[str]) -> None:
    """All are listed, newest first, without a question to a scheduler: what has ended is known."""
    write_past(10_000)
    assert main(["list", "--all"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 10_001
    assert lines[1].split()[:5] == ["9999", "job49", "lab", "COMPLETED", "0"]
    assert main(["list", "-n", "3"]) == 0
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 4
    assert "9997 older" in err


def test_damage_and_hostile_names_are_shown_harmlessly(capfd: pytest.CaptureFixture[str]) -> None:
    """A damaged line is counted on stderr; a name with escape codes does not steer the terminal."""
    record = submit_local("true", name="a\x1b[2J\nb")
    (file,) = Path(os.environ["XDG_STATE_HOME"]).rglob("*.jsonl")
    with file.open("ab") as stream:
        stream.write(b"{torn")
    assert main(["wait", record.id]) == 0
    assert main(["list"]) == 0
    out, err = capfd.readouterr()
    assert "\x1b" not in out + err
    assert "a\\x1b[2J\\nb" in out
    assert "skipped 1 line: damaged, or written by a newer hpcjob" in err


def test_unknown_jobs_are_usage_errors(capfd: pytest.CaptureFixture[str]) -> None:
    """Code 2 and what is there instead."""
    submit_local("true", name="gpt")
    for command in ("status", "show", "wait", "cancel"):
        assert main([command, "nope"]) == 2
        assert "(gpt)" in capfd.readouterr().err


def test_state_folder_not_writable(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Told before anything is submitted; reading is no problem."""
    (here / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "file"))
    assert main(["submit", job_file(here / "a.yml", "true"), "-p", "local"]) == 1
    assert "nothing was submitted" in capfd.readouterr().err
    assert not (here / "outputs").exists()
    assert main(["list"]) == 0


def test_show_a_job_whose_folder_is_gone(capfd: pytest.CaptureFixture[str]) -> None:
    """What the index knows is shown; nothing fails."""
    write_past(1)
    assert main(["show", "0"]) == 0
    out = capfd.readouterr().out
    assert "state        COMPLETED" in out
    assert "files" not in out


def test_attach_from_the_command_line(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A job of Slurm submitted by hand is found by its name afterwards, and asked about."""
    fake_command(tmp_path / "bin", "squeue", "echo 'JOBID|STATE|REASON|NAME'; echo '4711|PENDING|Priority|by hand'")
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    assert main(["attach", "4711", "-p", "lab"]) == 0
    assert main(["status", "by", "--json"]) == 0
    status = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (status["id"], status["state"], status["reason"]) == ("4711", "PENDING", "Priority")


def test_every_help_is_a_page_of_a_manual() -> None:
    """What it does in a sentence, lines to copy, a help for each option, and no line wider than a terminal."""
    for command, name in commands_below(cli, "hpcjob"):
        help_text = CliRunner().invoke(command, ["--help"], prog_name=name, terminal_width=80).output
        assert not [line for line in help_text.splitlines() if len(line) > 80], name
        assert (command.help or "").partition("\n\n")[0].endswith("."), name
        assert all(one.help for one in command.params if isinstance(one, click.Option)), name
        if not isinstance(command, click.Group):
            assert name in help_text.partition("Examples:\n")[2], name


def commands_below(group: click.Group, name: str) -> Iterator[tuple[click.Command, str]]:
    """Yield a command and all below it, each with its words."""
    yield group, name
    for word in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_below(command, f"{name} {word}")
        else:
            yield command, f"{name} {word}"


@pytest.mark.parametrize("output", [">/dev/full", ">&-", ">/dev/full 2>/dev/full", "> >(exec true)"])
def test_output_that_cannot_be_written_stops_no_submission(output: str, here: Path) -> None:
    """All jobs are submitted, and the code is that of the submissions."""
    job = job_file(here / "a.yml", "true")
    line = f"exec {sys.executable} -m hpcjob submit {job} {job} -p local {output}"
    done = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )
    ids = [record.id for record in reversed(read_index().records)]
    assert (done.returncode, len(ids)) == (0, 2)
    if output == ">/dev/full":
        assert done.stderr == (
            f"hpcjob: submitted: {' '.join(ids)}\nhpcjob: standard output: No space left on device\n"
        )
    assert main(["wait", *ids]) == 0


def test_names_in_messages_do_not_steer_the_terminal(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Escape sequences and line breaks of a job's name, in the hint about the newest."""
    submit_local("true", name="\x1b[31mRED\n2")
    assert main(["status", "nosuch"]) == 2
    assert "(\\x1b[31mRED\\n2)" in capfd.readouterr().err
