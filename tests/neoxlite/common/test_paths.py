"""Names that no file can have: more than 255 bytes (NAME_MAX of Linux), a zero byte. They are names of no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from neoxlite.cli import main
from neoxlite.common import paths

LONG = "長" * 100  # 300 bytes


@pytest.mark.parametrize("test", [paths.exists, paths.is_file, paths.is_dir])
def test_no_file_has_such_a_name(test: paths.Test, tmp_path: Path) -> None:
    """Neither is there one above or below."""
    for name in (LONG, f"{LONG}/a", "a\0b", "x" * 5000):
        assert not test(tmp_path / name)


def test_what_is_there(tmp_path: Path) -> None:
    """Files, folders, nothing."""
    file = tmp_path / ("x" * 255)
    file.touch()
    asked = (paths.exists, paths.is_file, paths.is_dir)
    assert [test(file) for test in asked] == [True, True, False]
    assert [test(tmp_path) for test in asked] == [True, False, True]
    assert [test(tmp_path / "gone") for test in asked] == [False, False, False]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["config", "show", LONG], f"{LONG}.yml: no such configuration file"),
        (["config", "show", "x.yml", "-d", LONG], f"{LONG}/x.yml: no such configuration file"),
        (["train", LONG], f"{LONG}.yml: no such configuration file"),
        (["convert", "inspect", LONG], f"{LONG} is not a folder"),
        (["convert", "to-hf", LONG, "out"], f"{LONG} is not a folder"),
        (["generate", "--load", LONG], f"{LONG} is not a folder"),
        (["data", "inspect", LONG], f"dataset {LONG} cannot be read: File name too long"),
    ],
)
def test_commands(
    command: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each says that there is none, with the code of wrong usage."""
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert capfd.readouterr().err.startswith(f"neoxlite: {words}")
