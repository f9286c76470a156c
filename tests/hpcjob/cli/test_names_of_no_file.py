"""Names of no file (Linux: at most 255 bytes), pipes, links that lead nowhere: each command says what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcjob.cli import main

LONG = "長" * 100  # 300 bytes
JOB = "name: a\nwalltime: 5m\nsteps: [{name: x, command: ['true']}]\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["render", LONG, "-p", "lab"], f"{LONG}: no such job file"),
        (["submit", LONG, "-p", "local"], f"{LONG}: no such job file"),
        (["render", "a.yml", "-p", LONG], f"no profile '{LONG}'"),
        (["render", "a.yml", "-p", "own.yml"], f"own.yml:3: extends: no profile '{LONG}'"),
        (["render", "a.yml", "-p", f"./{LONG}.yml"], f"{LONG}.yml: File name too long"),
        (["render", "nul.yml", "-p", "lab"], "nul.yml:2: array.lines: \\x00: a zero byte is in its name"),
        (["profile", "show", LONG], f"no profile '{LONG}'"),
        (["tail", LONG], f"no jobs are recorded here, and no file '{LONG}' is here"),
        (["tail", "-f", f"{LONG}.log"], f"no jobs are recorded here, and no file '{LONG}.log' is here"),
        (["explain", LONG], f"no jobs are recorded here, and no file '{LONG}' is here"),
        (["plot", LONG], f"no jobs are recorded here, and no file '{LONG}' is here"),
        (["export", LONG, "--csv"], f"no jobs are recorded here, and no file '{LONG}' is here"),
        (["explain", "a.yml", LONG], f"{LONG}: no file"),
        (["render", "a.yml", "-p", "lab", "-o", LONG], f"--output: {LONG}: File name too long"),
        (["render", "a.yml", "-p", "lab", "--python", f"./{LONG}"], f"--python: ./{LONG} does not exist here"),
        (["render", "~nobody-here/a.yml", "-p", "lab"], "~nobody-here/a.yml: no such job file"),
        (["render", "a.yml", "-p", "~nobody-here/a.yml"], "~nobody-here/a.yml: no such profile"),
        (
            ["render", "a.yml", "-p", "lab", "--python", "~nobody-here/a"],
            "--python: ~nobody-here/a does not exist here",
        ),
        (
            ["render", "nul.yml", "-p", "lab", "--set", "array.lines=~nobody-here/a"],
            "--set array.lines: ~nobody-here/a: ",
        ),
        (["status", "~nobody-here/a"], "no jobs are recorded here"),
        (["attach", "5", LONG, "-p", "local"], f"{LONG}: no such log file or job directory"),
    ],
)
def test_commands(command: list[str], words: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each says that there is none, with the code of wrong usage."""
    Path("a.yml").write_text(JOB)
    Path("nul.yml").write_text('name: a\narray: {lines: "\\0"}\ncommand: ["true"]\n')
    Path("own.yml").write_text(f"schema: 1\nname: own\nextends: {LONG}\n")
    assert main(command) == 2
    assert capfd.readouterr().err.startswith(f"hpcjob: {words}")


def test_what_is_no_file(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A pipe as a job file, and a link to itself, are told for what they are."""
    os.mkfifo("pipe.yml")
    for name in ("loop.yml", "loop.log"):
        Path(name).symlink_to(name)
    for command, words in (
        (["render", "pipe.yml", "-p", "lab"], "pipe.yml: a pipe, a socket or a device, not a job file"),
        (["render", "loop.yml", "-p", "lab"], "loop.yml: a link that leads nowhere, not a job file"),
        (["tail", "loop.log"], "loop.log: a link that leads nowhere"),
        (["explain", "loop.log"], "loop.log: a link that leads nowhere"),
    ):
        assert main(command) == 2
        assert capfd.readouterr().err.startswith(f"hpcjob: {words}\n")


def test_no_home_folder(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A user whom the system does not know, as in a container: scripts are rendered, and no folder `~` is made."""
    Path("a.yml").write_text(JOB)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}["nobody"])
    assert main(["render", "a.yml", "-p", "lab"]) == 0
    capfd.readouterr()
    for command in (["list"], ["submit", "a.yml", "-p", "local"], ["status", "1"]):
        assert main(command) == 1
        told = "hpcjob: no home folder is known, in which jobs are recorded\n        set HOME or XDG_STATE_HOME\n"
        assert capfd.readouterr().err == told
    assert [path.name for path in here.iterdir()] == ["a.yml"]


def test_the_current_folder_is_gone(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Removed by another shell, or moved to another disk: a line, and what needs no folder goes on."""
    (here / "a.yml").write_text(JOB)
    (here / "gone").mkdir()
    monkeypatch.chdir(here / "gone")
    (here / "gone").rmdir()
    for command in (["submit", f"{here}/a.yml", "-p", "local"], ["attach", "7", "-p", "local"]):
        assert main(command) == 1
        assert capfd.readouterr().err == "hpcjob: the current folder is gone\n        cd to a folder that exists\n"
    assert main(["list"]) == 0
