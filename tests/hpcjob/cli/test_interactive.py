"""``hpcjob interactive``: the command of each scheduler, and shells here and on emulated PBS and PJM in a terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from hpcjob.cli import main
from tests.emulators import Emulator
from tests.hpcjob.jobs import with_path
from tests.hpcjob.terminal import type_into

HPCJOB = str(Path(sys.executable).parent / "hpcjob")


@pytest.fixture
def own_place(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, also the home of the shells."""
    monkeypatch.setenv("HOME", str(here))
    return here


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Return the words of the command that would be run, the shell's path as SHELL."""
    assert main(["interactive", *arguments, "--print"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return [re.sub(r"/\S+/outputs/\S+/script\.sh", "SHELL", word) for word in shlex.split(line)]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        # salloc(1), srun(1) of Slurm 22.05: one CPU per process is the default, to which task/affinity binds
        (
            "-p lab -n 2 -t 1h -q debug -A g",
            "salloc --job-name=shell --account=g --partition=debug --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 "
            "--time=01:00:00 srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpu-bind=none --overlap --preserve-env "
            "--pty SHELL",
        ),
        # `qsub -I -P group -q resource_type -l select=num` (docs.abci.ai/v3/en/job-execution)
        ("-p abci3 -A g", "qsub -I -N shell -P g -q rt_HF -l select=1:mpiprocs=8 -l walltime=01:00:00 -S SHELL"),
        (
            "-p miyabi -A g -n 8",
            "qsub -I -N shell -W group_list=g -q interact-g -l select=8:mpiprocs=1 -l walltime=00:10:00 -S SHELL",
        ),
        # `qrsh -g grpname -l rt_F=1 -l h_rt=1:00:00 -pty yes ... /bin/bash` (docs.abci.ai/en/job-execution)
        ("-p abci2 -A g -q rt_F", "qrsh -g g -cwd -N shell -l rt_F=1 -l h_rt=01:00:00 -pty yes SHELL"),
        # interactive-a gives one node for ten minutes
        (
            "-p wisteria -A g",
            "pjsub --interact -N shell -g g -L rscgrp=interactive-a -L node=1 -L elapse=00:10:00 --mpi proc=8 "
            "-x 'PROMPT_COMMAND=exec SHELL'",
        ),
        ("-p local", "bash SHELL"),
    ],
)  # fmt: skip
def test_command(arguments: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same resources as a job's directives, by the scheduler's own command for shells."""
    assert printed(capsys, *arguments.split()) == shlex.split(command)


def test_more_of_a_job(own_place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Raw directives and variables of PBS go along; output, mail, arrays and restarts are a batch job's."""
    job = {"command": ["a"], "extra": ["-v RTYPE=rt_HF", "-p 20"], "mail": ["end"], "mail_to": "a@b.c", "name": "x y"}
    (own_place / "job.yml").write_text(yaml.safe_dump(job))
    words = printed(capsys, "job.yml", "-p", "abci3", "-A", "g", "-n", "2")
    assert words[:4] == ["qsub", "-I", "-N", "x_y"]
    assert words[-6:] == ["-v", "RTYPE=rt_HF", "-p", "20", "-S", "SHELL"]
    assert not {"-o", "-j", "-k", "-m", "-M", "-r"} & set(words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "-p abci3 -A g -n 2 -t 6:00:01",
            "--walltime: 06:00:01 is longer than abci3 (rt_HF) allows for 2 nodes",
        ),
        ("-p abci2 -A g -q rt_F -n 33", "--nodes: 33 requested, but abci2 (rt_F) allows 32 per job"),
        ("-p wisteria -A g -n 2", "--nodes: 2 requested, but wisteria (interactive-a) allows 1 per job"),
        ("-p lab --set array=0-3", "--set array: a shell has none\n"),
        ("-p lab --set interactive=1", "--set interactive: job file has no key 'interactive'"),
        (
            "-p lab --set profile.interactive.refused='use the login nodes'",
            "lab gives no interactive shells: use the login nodes\n",
        ),
        ("-p abci3", "account: none given, abci3 refuses a shell without one\n"),
        ("-p lab", "hpcjob interactive needs a terminal\n"),
    ],
)
def test_refusals(arguments: str, message: str, own_place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a site does not give, and what a shell cannot be, before anything is written."""
    assert main(["interactive", *shlex.split(arguments), "--set", "profile.paths.not_shared=[]"]) == 2
    assert (
        capsys.readouterr()
        .err.replace("\n        ", "\n")
        .partition("hpcjob: ")[2]
        .split("hpcjob: ")[-1]
        .startswith(message)
    )
    assert not (own_place / "outputs").exists()


@pytest.mark.ci
def test_a_command_that_is_not_here(own_place: Path) -> None:
    """On another machine than the cluster's: one line, and no folder is left."""
    argv = [HPCJOB, "interactive", "-p", "abci3", "-A", "g", "--set", "profile.paths.not_shared=[]"]
    code, shown = type_into(argv, [], env={**os.environ, "PATH": "/nowhere"})
    assert code == 1
    assert "hpcjob: qsub: No such file or directory\n" in shown
    assert not (own_place / "outputs").exists()


@pytest.mark.ci
def test_what_the_scheduler_refuses_leaves_nothing(
    own_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words, its code, and no folder."""
    emulator = Emulator(tmp_path / "cluster", "pbs")
    monkeypatch.setenv("PATH", with_path(emulator.bin))
    argv = [HPCJOB, "interactive", "-p", "abci3", "-A", "g", "-q", "nowhere", "--set", "profile.paths.not_shared=[]"]
    code, shown = type_into(argv, [])
    emulator.end()
    assert code == 170
    assert "qsub: Unknown queue" in shown
    assert not (own_place / "outputs").exists()


@pytest.mark.parametrize("profile", ["lab", "abci3"])
def test_scripts_are_clean(profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script that becomes the shell, and the one that `launch` runs."""
    assert main(["interactive", "-p", profile, "-A", "g", "--print", "--json"]) == 0
    script = json.loads(capsys.readouterr().out)["script"]
    inner = re.search(r"<<'END_OF_LAUNCH'\n(.*?)\nEND_OF_LAUNCH\n", script, re.DOTALL)
    assert inner
    for name, text in (("script", script), ("launch", f"{inner[1]}\n")):
        (tmp_path / name).write_text(text)
        done = subprocess.run(
            ["shellcheck", "-s", "bash", tmp_path / name],
            env={"PATH": with_path(Path(HPCJOB).parent)},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.ci
def test_a_shell_here(own_place: Path) -> None:
    """Environment, Python, `launch` with and without words, its code, and the code of the shell."""
    (own_place / "env.sh").write_text("export FROM_FILE='it is'\n")
    (own_place / ".bashrc").write_text("export GREETING=bashrc; ALSO=kept\n")
    job = {
        "kind": "cpu",
        "command": ["bash", "-c", "echo work of $GREETING"],
        "env": {"GREETING": "a job"},
        "source": ["env.sh"],
    }
    (own_place / "job.yml").write_text(yaml.safe_dump(job))
    lines = [
        'echo "<$GREETING $FROM_FILE $ALSO>"; python -c "print(6*7)"; export SINCE=now',
        "launch; launch --help",
        'launch bash -c "echo $((2+3)) $SINCE"; launch false; echo "code $?"',
        "exit 3",
    ]
    code, shown = type_into([HPCJOB, "interactive", "job.yml", "-p", "local"], lines)
    assert code == 3, shown
    assert re.search(
        r"^hpcjob: 1 node \(\S+\); `launch COMMAND\.\.\.`: one process; `launch` alone runs the job's work",
        shown,
        re.MULTILINE,
    )
    for line in ("<a job it is kept>", "42", "work of a job", "5 now", "code 1"):
        assert f"{line}\n" in shown, shown
    assert "launch [COMMAND...]: start COMMAND" in shown
    (folder,) = (own_place / "outputs" / "job").iterdir()
    (record,) = folder.glob("*_exit.json")
    assert json.loads(record.read_text())["code"] == 3


def test_a_check_that_fails(own_place: Path) -> None:
    """No shell, the job's code 87, and why in one line."""
    argv = [HPCJOB, "interactive", "-p", "local", "--set", "source=[nowhere.sh]"]
    code, shown = type_into(argv, [])
    assert code == 87
    assert shown.splitlines()[-1] == "hpcjob: check: source: cannot read nowhere.sh"


@pytest.mark.ci
@pytest.mark.parametrize(("system", "profile"), [("pbs", "abci3"), ("pjm", "wisteria")])
def test_a_shell_of_an_emulated_site(
    system: Literal["pbs", "pjm"], profile: str, own_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler's words, then our shell in the submit folder with the job's environment; its end is the job's."""
    emulator = Emulator(tmp_path / "cluster", system)
    try:
        emulator.set(needs_group=True)
        monkeypatch.setenv("PATH", with_path(emulator.bin))
        own: dict[str, Any] = {
            "extends": profile,
            "title": "t",
            "paths": {"not_shared": []},
            "modules": {"init": None, "load": []},
        }
        (own_place / "cluster_profiles").mkdir()
        (own_place / "cluster_profiles" / "site.yml").write_text(yaml.safe_dump(own))
        job = {
            "kind": "cpu",
            "queue": None if system == "pjm" else "rt_HC",
            "command": ["pwd"],
            "env": {"GREETING": "it's"},
            "modules": [],
            "module_use": [],
        }
        (own_place / "job.yml").write_text(yaml.safe_dump(job))
        lines = ['echo "<$GREETING>" $HPCJOB_JOB_ID; pwd; launch', "exit"]
        argv = [HPCJOB, "interactive", "job.yml", "-p", "site", "-A", "gg53"]
        if system == "pjm":
            argv += ["--set", "profile.modules.use=[]"]
        code, shown = type_into(argv, lines)
    finally:
        emulator.end()
    number = {"pbs": "101", "pjm": "1334958"}[system]
    assert code == 0, shown
    assert f"<it's> {number}" in shown
    assert [line.rpartition("\r")[2] for line in shown.split("\n")].count(str(own_place)) == 2
    assert {"pbs": "qsub: job 101.pbs1 completed", "pjm": f"Interactive job {number} completed"}[system] in shown
    assert emulator.jobs[number]["state"] == "ended"
    assert emulator.jobs[number]["queue"] == {"pbs": "rt_HC", "pjm": "interactive-a"}[system]
