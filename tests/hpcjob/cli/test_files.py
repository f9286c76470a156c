"""Files that commands write where the user says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hpcjob.cli import main
from hpcjob.cli.files import write_new
from hpcjob.errors import InputError


def test_a_device_stays_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also root's `-o /dev/null --force` writes into the device and leaves it where it is."""
    assert main(["render", "-p", "local", "-o", "/dev/null", "--force"]) == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    reader, writer = os.pipe()
    write_new(Path(f"/dev/fd/{writer}"), "text", force=False)
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    os.close(writer)


def test_a_file_is_kept(here: Path) -> None:
    """It is replaced with --force alone; a folder is no file."""
    write_new(here / "a", "1", force=False)
    with pytest.raises(InputError, match="--output: .*a exists"):
        write_new(here / "a", "2", force=False)
    write_new(here / "a", "2", force=True)
    assert (here / "a").read_text() == "2"
    with pytest.raises(InputError, match="--output: "):
        write_new(here, "2", force=True)
