"""The lazy command group and how errors reach the user."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import click
import pytest

from neoxlite.common.cli import LazyGroup, run
from neoxlite.common.errors import UserError


@click.command()
@click.argument("word")
@click.option("--debug-level", default=0)
def fail(word: str, debug_level: int) -> None:
    """Fail with the word."""
    raise UserError(f"bad word {word!r}", hint="say another", exit_code=2)


@click.command()
def crash() -> None:
    """Raise what no user caused."""
    raise ZeroDivisionError


@click.command()
def full() -> None:
    """Write to a disk that is full."""
    Path("/dev/full").write_text("a line\n")


@click.command()
def closed() -> None:
    """Read what only its owner may."""
    raise PermissionError(errno.EACCES, "Permission denied", "a/b.yml")


@click.command()
def number() -> int:
    """Return an exit code."""
    return 85


@pytest.fixture
def group() -> click.Group:
    """A group over this module's commands and one that cannot be imported."""
    here = __name__
    lazy = {
        "fail": (f"{here}:fail", "Fail."),
        "crash": (f"{here}:crash", "Crash."),
        "full": (f"{here}:full", "Fill."),
        "closed": (f"{here}:closed", "Open."),
        "number": (f"{here}:number", "Exit with 85."),
        "absent": ("no.such.module:thing", "Not there."),
    }
    return LazyGroup("tool", lazy=lazy)


def test_user_error_is_two_lines_and_its_code(group: click.Group, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong, what to do, exit code; no traceback."""
    assert run(group, "tool", ["fail", "日本"]) == 2
    assert capsys.readouterr().err == "tool: bad word '日本'\n      say another\n"


def test_debug_shows_the_traceback_wherever_it_stands(group: click.Group, capsys: pytest.CaptureFixture[str]) -> None:
    """--debug is taken before and after the command's name."""
    for argv in (["--debug", "fail", "x"], ["fail", "x", "--debug"]):
        assert run(group, "tool", argv) == 2
        assert "Traceback" in capsys.readouterr().err


def test_debug_after_a_double_dash_belongs_to_the_command(
    group: click.Group, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands after -- is the command's own argument."""
    assert run(group, "tool", ["fail", "--", "--debug"]) == 2
    assert capsys.readouterr().err.startswith("tool: bad word '--debug'\n")


def test_a_fault_of_the_tool_is_not_hidden(group: click.Group) -> None:
    """An unexpected exception is no user error and keeps its traceback."""
    with pytest.raises(ZeroDivisionError):
        run(group, "tool", ["crash"])


def test_exit_code_of_a_command_is_passed_on(group: click.Group) -> None:
    """A job's own code reaches the shell."""
    assert run(group, "tool", ["number"]) == 85


def test_help_imports_no_command(group: click.Group, capsys: pytest.CaptureFixture[str]) -> None:
    """--help of the group works although a command's module does not exist."""
    assert run(group, "tool", ["--help"]) == 0
    assert "absent  Not there." in capsys.readouterr().out


def test_unknown_command_and_option_are_usage_errors(group: click.Group, capsys: pytest.CaptureFixture[str]) -> None:
    """In click's own words, exit code 2."""
    assert run(group, "tool", ["faill"]) == 2
    assert "No such command 'faill'" in capsys.readouterr().err
    assert run(group, "tool", ["fail", "x", "--nope"]) == 2
    assert "--nope" in capsys.readouterr().err


def test_a_closed_pipe_ends_quietly() -> None:
    """`neoxlite --help | head -0` prints no traceback."""
    program = f"{sys.executable} -m neoxlite --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_a_missing_extra_is_named(group: click.Group, capsys: pytest.CaptureFixture[str]) -> None:
    """A module that belongs to an extra says what to install; any other missing module is a fault and raises."""
    assert run(group, "tool", ["absent"], {"no": "hpcjob[some]"}) == 1
    assert capsys.readouterr().err == (
        "tool: this needs no, which is not installed\n      pip install 'hpcjob[some]'\n"
    )
    with pytest.raises(ModuleNotFoundError):
        run(group, "tool", ["absent"])


@pytest.mark.parametrize(
    ("name", "words"),
    [("numbr", "No such command 'numbr'; did you mean number?"), ("zzz", "No such command 'zzz'\n")],
)
def test_a_mistyped_command(group: click.Group, name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Near names are offered; no command is imported for it."""
    assert run(group, "tool", [name]) == 2
    assert words in capsys.readouterr().err


def test_files_that_cannot_be_used_are_told_in_two_lines(
    group: click.Group, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where they are the user's, and with the traceback for who asks; elsewhere they stay what they are."""
    assert run(group, "tool", ["closed"], files_are_the_users=True) == 1
    assert capsys.readouterr().err.startswith("tool: a/b.yml: Permission denied\n      check who may read")
    assert run(group, "tool", ["full"], files_are_the_users=True) == 1
    assert "No space left on device\n      free some space there" in capsys.readouterr().err
    assert run(group, "tool", ["closed", "--debug"], files_are_the_users=True) == 1
    assert 'raise PermissionError(errno.EACCES, "Permission denied", "a/b.yml")' in capsys.readouterr().err
    with pytest.raises(PermissionError):
        run(group, "tool", ["closed"])
