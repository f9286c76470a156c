"""One run told by several: torchrun's folders, ranks that print the same; and bars of many megabytes without an end."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from hpcjob.cli import main
from hpcjob.logs.lines import LINE_LIMIT_BYTES
from hpcjob.logs.scan import scan
from hpcjob.logs.shapes import Interest, Shapes

TITAN = (
    "[rank{0}]:[titan] 2025-06-01 12:00:00,000 - root - INFO - step: {1}  loss: {2:.4f}  grad_norm: 1.2345"
    "  memory: 60.12GiB(75.90%)  tps: 6,667  tflops: 386.12  mfu: 39.04%\n"
)
BAR = "\rEpoch 0:  10%|" + 200 * "█" + "| {0}/100000 [00:10<00:20, 5.00it/s, v_num=3, train_loss={1:.3f}]"


def rows(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    found = (line.split() for line in capsys.readouterr().out.splitlines())
    return [words for words in found if words and words[0].partition("/")[0].isdecimal()]


def test_an_iteration_that_each_rank_prints_is_one_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In whatever order they come; as events (--json) none is left out, and ranks that differ are all shown."""
    ranks = ((0, 1, 2, 3), (3, 1, 0, 2), (2, 0, 3, 1))
    text = "".join(TITAN.format(rank, step, 8 - step) for step, order in enumerate(ranks, 1) for rank in order)
    path = tmp_path / "titan.log"
    path.write_text(text + TITAN.format(0, 4, 3.0) + TITAN.format(1, 4, 9.0))
    for view in ("--loss", "--lines=all"):
        assert main(["tail", str(path), view]) == 0
        assert [words[:2] for words in rows(capsys)] == [
            ["1", "7.000000"],
            ["2", "6.000000"],
            ["3", "5.000000"],
            ["4", "3.000000"],
            ["4", "9.000000"],
        ]
    assert main(["tail", str(path), "--loss", "--json", "-n", "all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 14


def test_folders_of_torchrun(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The folder tells the rank, and the place of an error names it: all files are called alike."""
    for rank in range(4):
        folder = tmp_path / "ログ" / "none_x1" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text("".join(f"iter {n}: loss {9 - n}.5, time 100.00ms\n" for n in range(1, 4)))
        (folder / "stderr.log").write_text("warming up\n" + ("ValueError: no such layer\n" if rank == 2 else ""))
    (tmp_path / "ログ" / "none_x1" / "attempt_0" / "3" / "stderr.log.gz").write_bytes(b"")
    assert main(["explain", str(tmp_path / "ログ")]) == 76
    lines = capsys.readouterr().out.splitlines()
    assert "first      rank 2" in lines
    assert "evidence   attempt_0/2/stderr.log:2: ValueError: no such layer" in lines
    assert main(["tail", str(tmp_path / "ログ"), "--loss"]) == 0
    assert [words[:2] for words in rows(capsys)] == [["1", "8.500000"], ["2", "7.500000"], ["3", "6.500000"]]
    assert main(["tail", str(tmp_path / "ログ"), "--rank", "2", "--raw"]) == 0
    assert "no such layer" in capsys.readouterr().out


def test_folders_of_several_nodes_tell_no_rank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each node counts its own processes from 0, so with two of them the folder is no rank of the job."""
    for node in ("run_a", "run_b"):
        folder = tmp_path / node / "attempt_0" / "0"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text("ValueError: no such layer\n" if node == "run_b" else "warming up\n")
    assert main(["explain", str(tmp_path)]) == 76
    assert "first" not in capsys.readouterr().out


def test_a_bar_of_megabytes_is_read_wholly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An epoch of 2,500 steps is one line of 1.6 MB; each step counts, and numbers of lines stay right."""
    path = tmp_path / "lightning.log"
    bar = "".join(BAR.format(n, 10 / n) for n in range(1, 2_501))
    assert len(bar.encode()) > 2 * LINE_LIMIT_BYTES
    path.write_text(f"start\n{bar}\nValueError: bad\n")
    assert main(["export", "--json", str(path)]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["iteration"] for row in told] == list(range(1, 2_501))
    assert told[1_999]["loss"] == pytest.approx(0.005)
    assert main(["explain", str(path)]) == 76
    assert "lightning.log:3: ValueError: bad" in capsys.readouterr().out


@pytest.mark.parametrize("chunk", [1_000, 65_536, 131_072])
def test_places_after_a_bar(chunk: int) -> None:
    """However the bytes come, the line after the bar has its number and offset, also where its last part is cut."""

    class Chunks(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(chunk)

    bar = "".join(BAR.format(n, 1.0) for n in range(1, 1_501)).encode() + b"\r" + b"x" * (LINE_LIMIT_BYTES + 9)
    data = bar + b"\nneedle here\nno\nneedle\n"
    found = [item for item in scan(Chunks(data), Shapes([(Interest.ALL, [b"needle"])])) if b"needle" in item[2]]
    assert found == [(2, len(bar) + 1, b"needle here"), (4, len(bar) + 16, b"needle")]
