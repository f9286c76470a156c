"""What a job's script would miss after hours in the queue is refused, or said, at submission."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from hpcjob.cli import main

HINT = "        the job would end before its launch: fix this, or submit anyway with --no-check\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A submit folder, below a home folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


SHARED = ("--set", "profile.paths.not_shared=[]")  # these folders are below /tmp


def dry(keys: str, *more: str) -> int:
    """Write a job file with ``keys`` from its second line on, and look at its submission."""
    Path("a.yml").write_text(f"kind: cpu\n{keys}\ncommand: ['true']\n")
    return main(["submit", "a.yml", "--dry-run", *more])


@pytest.mark.parametrize(
    ("keys", "key", "path"),
    [
        ("source: [a.sh]", "source", "a.sh"),
        ("stage_in: [データ]", "stage_in", "データ"),
        ("stage_in: ['part{array.index}/{array.value}']\narray: [x, y]", "stage_in", "part1/y"),
        ("python: {venv: env}", "python.venv", "env/bin/activate"),
        ("python: {executable: bin/python}", "python.executable", "bin/python"),
        ("python: {container: {image: x.sif}}", "python.container.image", "x.sif"),
    ],
)
def test_a_file_that_is_not_there(
    keys: str, key: str, path: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a cluster as on this machine: the submit folder is the same on all nodes. One that is there is no matter."""
    (folder / "part0").mkdir()
    (folder / "part0/x").touch()
    for profile in ("local", "lab"):
        assert dry(keys, "-p", profile, *SHARED) == 2
        assert capsys.readouterr().err == f"hpcjob: a.yml:2: {key}: {path} does not exist here\n{HINT}"
    assert dry(keys, "-p", "local", "--no-check") == 0
    capsys.readouterr()
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).touch()
    assert dry(keys, "-p", "local") == 0
    assert capsys.readouterr().err == ""


def test_an_element_without_an_array(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That there is no array is the mistake, not that there is no file."""
    assert dry("stage_in: ['a{array.index}']", "-p", "local") == 2
    assert "stage_in: {array.index}, and the job has no `array`" in capsys.readouterr().err


def test_what_this_machine_may_not_see(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes may have more than a login node: a note, and not a word of their own disks and of addresses."""
    (folder.parent / "home.sh").touch()
    assert dry("source: [/no/such/file, /tmp/of-a-node.sh, ~/home.sh, ~/other.sh]", "-p", "lab") == 2, "below /tmp"
    assert [line for line in capsys.readouterr().err.splitlines() if "does not exist" in line] == [
        f"hpcjob: note: source: {path} does not exist here; a job that finds none ends before its launch"
        for path in ("/no/such/file", "~/other.sh")
    ]
    assert dry("python: {container: {image: 'docker://ubuntu'}}", "-p", "lab", *SHARED) == 0
    assert "there is no" not in capsys.readouterr().err


def test_what_an_earlier_job_may_make(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A note for the later jobs of a chain; the first one has to find its files."""
    Path("first.yml").write_text("kind: cpu\ncommand: ['true']\n")
    assert dry("stage_in: [made]", "first.yml", "-p", "lab", "--chain") == 2
    Path("first.yml").rename("b.yml")
    Path("a.yml").rename("c.yml")
    capsys.readouterr()
    assert main(["submit", "b.yml", "c.yml", "-p", "lab", *SHARED, "--chain", "--dry-run"]) == 0
    assert "note: stage_in: made does not exist here; a job" in capsys.readouterr().err


def test_limits_of_this_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No more than the hard limit; `memlock` and `stack` are in KiB, as in ulimit; of nodes nothing is known."""
    hard = {resource.RLIMIT_NOFILE: 4096, resource.RLIMIT_MEMLOCK: 8192, resource.RLIMIT_STACK: -1}
    monkeypatch.setattr("hpcjob.needs.resource.getrlimit", lambda number: (1024, hard[number]))
    for asked, most in (("nofile: 4097", 4096), ("memlock: unlimited", 8), ("memlock: 9", 8)):
        assert dry(f"limits: {{{asked}}}", "-p", "local") == 2
        key, _, value = asked.partition(": ")
        told = f"hpcjob: a.yml:2: limits.{key}: {value} requested, at most {most} is allowed here\n{HINT}"
        assert capsys.readouterr().err == told
    assert dry("limits: {nofile: 4096, memlock: 8, stack: unlimited}", "-p", "local") == 0
    assert dry("limits: {nofile: 4097}", "-p", "lab", *SHARED) == 0
