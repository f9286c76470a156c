"""Files are written whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neoxlite.common.files import replacing, write_whole


def test_text_arrives_as_utf8_with_its_mode(tmp_path: Path) -> None:
    """Japanese text and the asked mode are on the disk after the call."""
    path = tmp_path / "結果.json"
    write_whole(path, "損失 3.14\n", mode=0o600)
    assert path.read_bytes() == "損失 3.14\n".encode()
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """An exception in the block keeps the former content and removes the temporary file."""
    path = tmp_path / "outcome.json"
    path.write_text("old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half of the new", 5])  # type: ignore[list-item]  # the error under test
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["outcome.json"]


def test_a_missing_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    """The caller gets the operating system's error with the path."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_whole(tmp_path / "nowhere" / "file", "x")


def test_kill_in_the_middle_never_leaves_half_a_file(tmp_path: Path) -> None:
    """SIGKILL while the block writes leaves the former content under the final name."""
    path = tmp_path / "state"
    path.write_text("old")
    program = (
        "import sys, time; from pathlib import Path; from neoxlite.common.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as file:\n"
        "    file.write(b'x' * 100_000); file.flush(); print('half', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half\n"
        child.send_signal(signal.SIGKILL)
    assert path.read_text() == "old"


def test_readers_see_only_whole_files(tmp_path: Path) -> None:
    """While one process rewrites a file again and again, another never reads a part of it."""
    path = tmp_path / "value"
    write_whole(path, "a" * 50_000)
    program = (
        "import sys; from pathlib import Path; from neoxlite.common.files import write_whole\n"
        "for i in range(40): write_whole(Path(sys.argv[1]), 'ab'[i % 2] * 50_000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)]) as child:
        while child.poll() is None:
            text = path.read_text()
            assert len(text) == 50_000
            assert len(set(text)) == 1
            time.sleep(0.001)
    assert child.returncode == os.EX_OK
