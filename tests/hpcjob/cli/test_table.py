"""Tables: a line a row for machines, folded where a terminal is narrower."""

from __future__ import annotations

from types import SimpleNamespace
from unicodedata import east_asian_width

import pytest

from hpcjob.cli.table import folded, print_table

ROWS = [
    {"id": "12345", "name": "long " * 12 + "end", "state": "FAILED", "note": "x" * 30},
    {"id": "7", "name": "学習", "state": "RUNNING", "note": None},
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal of 60 columns."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("hpcjob.cli.table.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))


def test_a_line_a_row(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no terminal reads, its width does not matter."""
    monkeypatch.setenv("COLUMNS", "60")
    print_table(ROWS, fold=("name", "note"))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "12345", "7"]
    assert lines[1].endswith(f"end  FAILED   {'x' * 30}")


def test_folded_at_the_width_of_the_terminal(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    """The long cells go on in lines of their own; no line is too long, and no word is lost."""
    print_table(ROWS, fold=("name", "note"), paint=lambda column, cell, _: cell.lower() if column == "state" else cell)
    lines = capsys.readouterr().out.splitlines()
    assert max(sum(2 if east_asian_width(char) in "WF" else 1 for char in line) for line in lines) <= 60
    assert [line.split()[0] for line in lines if line[0] != " "] == ["ID", "12345", "7"]
    text = " ".join(lines)
    assert (text.count("long"), text.count("x"), text.count("failed"), text.count("学習")) == (12, 30, 1, 1)


def test_what_would_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escaped, whatever the table."""
    print_table([{"name": "\x1b[31m\u202ex\ny"}])
    assert capsys.readouterr().out == "NAME\n\\x1b[31m\\u202ex\\ny\n"


def test_nothing_to_fold(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A table that fits stays as it is; one that cannot be made to fit stays whole."""
    print_table(ROWS[1:], fold=("name", "note"))
    assert capsys.readouterr().out == "ID  NAME  STATE    NOTE\n7   学習  RUNNING  -\n"
    print_table(ROWS[:1])
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two three", ["one two", "three"]),
        ("one  two   three", ["one  two", "three"]),
        ("abcdefghijkl", ["abcdefgh", "ijkl"]),
        ("学習学習学習", ["学習学習", "学習"]),
        ("a学習学習", ["a学習学", "習"]),
        (" " * 20, ["", ""]),
    ],
)
def test_folding(text: str, lines: list[str]) -> None:
    """Between words where there are some, else where the eight columns are full."""
    assert list(folded(text, 8)) == lines
