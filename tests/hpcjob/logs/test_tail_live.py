"""``hpcjob tail`` while things go on: pipes, logs that grow, terminals."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import HPCJOB, tail


def test_standard_input(folder: Path) -> None:
    """A pipe is read to its end; --loss and -n work on it; a named pipe too."""
    data = (folder / "12_job.out").read_bytes()
    done = subprocess.run([*HPCJOB, "tail", "-", "--loss", "-n", "2"], input=data, capture_output=True, check=True)
    assert [row.split()[0] for row in done.stdout.decode().splitlines()] == ["iteration", "1000", "11.000000"]
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen([*HPCJOB, "tail", str(fifo), "--raw", "-n", "1"], stdout=subprocess.PIPE) as process:
        fifo.write_bytes(b"a\nb\n")
        assert process.communicate()[0] == b"b\n"


def test_standard_input_is_shown_as_it_comes() -> None:
    """With -f a line is seen while the writer goes on."""
    command = [*HPCJOB, "tail", "-", "-f", "--raw"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"first\n"
        process.stdin.close()
        assert process.wait() == 0


def test_follow_shows_what_is_appended(tmp_path: Path) -> None:
    """-f waits for a file that is not there, shows new lines, and ends on Ctrl-C without a traceback."""
    log = tmp_path / "12_job.out"
    command = [*HPCJOB, "tail", str(tmp_path), "-f", "--raw"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"waiting" in process.stderr.readline()
        log.write_bytes(b"hello\n")
        assert process.stdout.readline() == f"==> {log} <==\n".encode()
        assert process.stdout.readline() == b"hello\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read().strip() == b""


def test_closed_pipe_is_no_error(folder: Path) -> None:
    """``| head`` ends the command quietly."""
    (folder / "12_job.out").write_text("x" * 100 + "\n" + "y\n" * 200_000)
    command = [*HPCJOB, "tail", str(folder / "12_job.out"), "--raw", "-n", "all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        process.wait()
        assert process.stderr.read() == b""


def on_terminal(arguments: list[str], environment: dict[str, str]) -> str:
    parent, child = pty.openpty()
    try:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", **environment}
        with subprocess.Popen([*HPCJOB, "tail", *arguments], stdout=child, env=environment) as process:
            os.close(child)
            data = b""
            while True:
                try:
                    piece = os.read(parent, 65536)
                except OSError:  # how Linux tells that the other end is closed
                    break
                if not piece:
                    break
                data += piece
            assert process.wait() == 0
    finally:
        os.close(parent)
    return data.decode().replace("\r\n", "\n")


def test_colours_on_a_terminal_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal gets the same rows in colour, unbroken; NO_COLOR gets none; the log's own codes never pass."""
    with (folder / "12_job.out").open("a") as file:
        file.write("\x1b[2Jcleared [red]x[/red] :smile:\n")
    for arguments in (["--loss"], ["--raw", "-n", "3"], ["--errors"]):
        plain = tail(capsys, folder, *arguments)
        coloured = on_terminal([str(folder), *arguments], {})
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines() == plain
        assert "\x1b[" in coloured
        assert "\x1b[2J" not in coloured
    assert "\x1b[3" not in on_terminal([str(folder), "--loss"], {"NO_COLOR": "1"})


def test_the_status_stands_at_the_bottom_of_a_terminal(folder: Path) -> None:
    """As many fields as fit in a line, the first ones first; without a terminal there is none."""
    coloured = on_terminal([str(folder / "12_job.out"), "-n", "2"], {"NO_COLOR": "1", "COLUMNS": "60"})
    *_, last = re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()
    assert last == "iteration 10/320000  loss 0.000123  163,840 tokens/s"
    done = subprocess.run([*HPCJOB, "tail", str(folder / "12_job.out"), "-n", "2"], capture_output=True, check=True)
    assert last not in done.stdout.decode()
    assert b"\x1b" not in done.stdout


def test_following_on_a_terminal_draws_the_status_anew(tmp_path: Path, golden: dict[str, Any]) -> None:
    """It is wiped before a row is written, so that rows stand one below the other; Ctrl-C leaves the last one."""
    log = tmp_path / "x.log"
    own = golden["iteration_line"][0]["line"]
    log.write_text(own)
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}
    with subprocess.Popen([*HPCJOB, "tail", str(log), "-f"], stdout=child, env=environment) as process:
        os.close(child)
        data = b""
        while b"iteration 100/320000" not in data:
            data += os.read(parent, 65536)
        with log.open("a") as file:
            file.write(own.replace("     100/", "     200/"))
        while b"iteration 200/320000" not in data:
            data += os.read(parent, 65536)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):
            while piece := os.read(parent, 65536):
                data += piece
        assert process.wait() == 130
    os.close(parent)
    text = re.sub(r"\x1b\[[0-9;]*m", "", data.decode().replace("\r\n", "\n"))
    screen = re.sub(r"[^\n]*\r\x1b\[K", "", text)
    assert [row.split()[0] for row in screen.splitlines()] == ["iteration", "100/320000", "200/320000", "iteration"]
