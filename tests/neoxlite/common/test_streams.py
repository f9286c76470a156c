"""Output that cannot be written, and locales that are not UTF-8: through the commands, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIST = "-m hpcjob profile list"
NO_SPACE = "standard output: No space left on device\n"


def shell(line: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which $PY is Python; exit code and streams as a user sees them."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PY": sys.executable, **(environment or {})}
    return subprocess.run(["bash", "-c", line], capture_output=True, env=env, timeout=240, check=False)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("program", "line"), [("hpcjob", LIST), ("neoxlite", "-m neoxlite config show 125M")])
def test_a_full_disk_is_one_line(program: str, line: str, unbuffered: str) -> None:
    """No traceback, code 1; with and without a buffer."""
    done = shell(f"exec $PY {line} > /dev/full", {"PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr.decode()) == (1, f"{program}: {NO_SPACE}")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_quiet(unbuffered: str) -> None:
    """A reader that is gone before the first line."""
    line = f"exec 3> >(exec true); wait $!; exec $PY {LIST} >&3 3>&-"
    done = shell(line, {"PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr) == (1, b"")


def test_closed_streams_are_as_dev_null() -> None:
    """Each alone and all together; an error's code stays."""
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        done = shell(f"exec $PY {LIST} {closed}")
        assert (done.returncode, done.stderr) == (0, b"")
    assert shell("exec $PY -m hpcjob status nosuch 2>&-").returncode == 2


def test_a_message_that_cannot_be_written_changes_no_code() -> None:
    """Usage errors stay 2, whatever becomes of their words."""
    assert shell("exec $PY -m hpcjob nosuch 2> /dev/full").returncode == 2


def test_file_names_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    """The C locale as Python takes it without its own two ways out of it: ASCII."""
    names = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    told = shell("$PY -c 'import sys; print(sys.getfilesystemencoding())'", names)
    assert told.stdout == b"ascii\n"
    (tmp_path / "実験.yml").write_text("name: 実験\nprofile: local\ncommand: ['true']\n", encoding="utf-8")
    done = shell(f"cd {tmp_path} && exec $PY -m hpcjob render 実験.yml", names)
    assert done.returncode == 0
    assert "実験.yml" in done.stdout.decode("utf-8")


def test_a_terminal_that_lacks_a_letter_gets_its_number() -> None:
    """PYTHONIOENCODING is obeyed, and raises nothing."""
    done = shell("exec $PY -m hpcjob status 実験", {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2
    assert done.stderr.startswith(b"hpcjob: no job")
