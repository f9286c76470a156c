"""CSV, JSON lines and TensorBoard's event files, read by other programs than the one that wrote them."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli import main
from hpcjob.report.event_file import crc32c, folder_names
from tests.hpcjob.report.written import loaded, neox_line, saved, write

LOSSES = {10: "7.123458E+00", 20: "nan", 30: "6.500000E+00", 40: "1.000000E+300"}


@pytest.fixture
def log(here: Path) -> Path:
    """A run of four rows that restarted once; its name is Japanese."""
    lines = [neox_line(step, loss) for step, loss in LOSSES.items() if step <= 20] + [neox_line(30, "9.0"), saved(20)]
    lines += [loaded(20), *(neox_line(step, loss) for step, loss in LOSSES.items() if step > 20)]
    lines += [" validation results at iteration 40 | lm_loss value: 2.345678E+00 | lm_loss_ppl value: 1.0E+01 |\n"]
    lines += [" validation results at the end of training for test data | lm_loss value: 3.25E+00 |\n"]
    return write(here / "実験.log", lines)


def test_csv(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each number as the log has it; what is not told is empty."""
    assert main(["export", "実験.log", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(int(row["iteration"]), str(float(row["loss"]))) for row in rows] == [
        (step, str(float(loss))) for step, loss in LOSSES.items()
    ]
    assert [row["attempt"] for row in rows] == ["1", "1", "2", "2"]
    assert [row["restart"] for row in rows] == ["", "", "1", ""]
    assert [row["checkpoint"] for row in rows] == ["", "1", "", ""]
    assert [row["validation_loss"] for row in rows] == ["", "", "", "2.345678"]
    assert [row["test_loss"] for row in rows] == ["", "", "", "3.25"]
    assert {row["run"] for row in rows} == {"実験"}
    assert {row["lr"] for row in rows} == {"0.0001"}
    assert {row["memory_gib"] for row in rows} == {""}


def test_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Null is not finite, what is not told is left out; the lines can be read again."""
    assert main(["export", "実験.log", "--json", "-o", "out.jsonl"]) == 0
    rows = [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["loss"] for row in rows] == [7.123458, None, 6.5, 1e300]
    assert all("memory_gib" not in row for row in rows)
    assert main(["export", "out.jsonl", "--json"]) == 0
    again = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = ("iteration", "loss", "lr", "grad_norm", "tokens_per_s", "iteration_time_ms", "validation_loss", "test_loss")
    assert [[row.get(key) for key in told] for row in again] == [[row.get(key) for key in told] for row in rows]


def test_tensorboard(log: Path) -> None:
    """TensorBoard's own reader finds the numbers, in single precision, under the tags that the trainer writes."""
    board = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for _ in range(2):  # a second export replaces the first
        assert main(["export", "実験.log", "--tensorboard", "-o", "board"]) == 0
    read: Any = board.EventAccumulator("board/実験", size_guidance={board.SCALARS: 0})
    read.Reload()
    losses = read.Scalars("train/lm_loss")
    assert [one.step for one in losses] == list(LOSSES)
    for one, text in zip(losses, LOSSES.values(), strict=True):
        wanted = math.inf if float(text) > 3.4e38 else float(text)
        assert str(one.value) == str(wanted) or one.value == pytest.approx(wanted, rel=1e-7)
    assert [one.value for one in read.Scalars("runtime/iteration_time")] == pytest.approx([1.1702] * 4)
    assert [one.value for one in read.Scalars("runtime/tokens_per_sec")] == pytest.approx([27.346 * 2048] * 4)
    assert [(one.step, one.value) for one in read.Scalars("validation/lm_loss")] == [(40, pytest.approx(2.345678))]
    assert [(one.step, one.value) for one in read.Scalars("test/lm_loss")] == [(40, 3.25)]
    # ten iterations of 1.1702 s between two rows
    assert losses[1].wall_time - losses[0].wall_time == pytest.approx(11.702)


def test_tensorboard_with_the_times_of_the_log(here: Path) -> None:
    """Where the log tells times the events have them."""
    board = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    text = '{"iteration": %d, "loss": 2.0, "time": "2026-11-29T00:00:%02d+00:00"}\n'
    (here / "m.jsonl").write_text("".join(text % (i, i) for i in (1, 2, 7)))
    assert main(["export", "m.jsonl", "--tensorboard", "-o", "board"]) == 0
    read: Any = board.EventAccumulator("board/m")
    read.Reload()
    assert [one.wall_time for one in read.Scalars("train/lm_loss")] == [1795910401.0, 1795910402.0, 1795910407.0]


def test_checksum() -> None:
    """The check value of CRC-32C, and the vectors of RFC 3720, appendix B.4."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_names_of_folders() -> None:
    """No name leads out of the folder, and no two runs meet."""
    names = ["../../etc", "..", "", "a/b", "a:b", "実験" * 100, "x\0\ny"]
    found = folder_names(names)
    assert len(set(found)) == len(names)
    for name in found:
        assert "/" not in name
        assert name.strip(". ") == name
        assert 0 < len(name.encode()) <= 210
        assert name.isprintable()


def test_a_name_is_no_formula(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A spreadsheet must not run what a file is called."""
    write(here / "=1+1.log", [neox_line(10, "2.0")])
    assert main(["export", "=1+1.log", "--csv"]) == 0
    assert next(csv.DictReader(io.StringIO(capsys.readouterr().out)))["run"] == "'=1+1"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a.log"], "hpcjob: export: into what?\n        add --csv, --json or --tensorboard\n"),
        (["a.log", "--tensorboard"], "hpcjob: --tensorboard: where to?\n        name a folder: -o FOLDER\n"),
        (
            ["a.log", "--tensorboard", "-o", "a.log"],
            "hpcjob: --output a.log: Not a directory\n        name a folder that you may write or make\n",
        ),
        (
            ["a.log", "--csv", "-o", "no/such/x.csv"],
            "hpcjob: --output: no/such/x.csv: No such file or directory\n"
            "        give a file in a folder that you may write, with free space\n",
        ),
        (
            ["empty.log", "--csv"],
            "hpcjob: no iteration found in empty\n        the log is empty, or not a trainer's: hpcjob tail JOB "
            "--errors shows what stopped it before\n",
        ),
    ],
)
def test_refused(here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    """One line what is wrong, one line what to do."""
    write(here / "a.log", [neox_line(10, "2.0")])
    (here / "empty.log").write_bytes(b"")
    assert main(["export", *arguments]) == 2
    assert capsys.readouterr().err == told
