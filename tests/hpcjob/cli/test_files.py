"""Files that commands write where the user says."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from hpcjob.cli.files import write_new, written
from hpcjob.errors import InputError


def test_what_is_no_file_stays_what_it_is(here: Path) -> None:
    """A pipe is written into, not replaced: the same would take root's /dev/null away."""
    pipe = here / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_new(pipe, "text", force=True)
    assert os.read(reader, 10) == b"text"
    assert pipe.is_fifo()
    with written(pipe) as file:
        file.write(b"more")
    assert os.read(reader, 10) == b"more"
    assert pipe.is_fifo()
    os.close(reader)


def test_written_whole_or_not_at_all(here: Path) -> None:
    """What was there stays where the writing fails, and nothing is left beside it; the user's umask holds."""
    path = here / "a"
    path.write_text("before")
    with pytest.raises(InputError, match=r"--output: .*a: No space left on device"):
        _write_half(path)
    assert [one.name for one in here.iterdir()] == ["a"]
    assert path.read_text() == "before"
    before = os.umask(0o027)
    try:
        with written(path) as file:
            file.write(b"after")
    finally:
        os.umask(before)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"after", 0o640)


def _write_half(path: Path) -> None:
    with written(path) as file:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_is_kept(here: Path) -> None:
    """It is replaced with --force alone; a folder is no file."""
    write_new(here / "a", "1", force=False)
    with pytest.raises(InputError, match=r"--output: .*a exists"):
        write_new(here / "a", "2", force=False)
    write_new(here / "a", "2", force=True)
    assert (here / "a").read_text() == "2"
    for force in (False, True):
        with pytest.raises(InputError, match=r"^--output: .*here is a folder\ngive the name of a file in it$"):
            write_new(here, "2", force=force)


def test_a_link_that_leads_nowhere_is_there(tmp_path: Path) -> None:
    """It is not replaced without --force, as any other name that is taken."""
    link = tmp_path / "setup.sh"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="exists"):
        write_new(link, "text", force=False)
    assert link.is_symlink()
    write_new(link, "text", force=True)
    assert link.read_text() == "text"
