"""Logs in another encoding, cut ones, ones to come; rows that only repeat others; a program's own last words."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hpcjob.cli import main
from hpcjob.errors import UnknownJobError
from hpcjob.logs.target import resolve

ROW = "iter {number}: loss 2.5, time 10ms\n"
TORCHRUN = """\
E1130 10:00:00.123000 1234 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 3) local_rank: 1 (pid: 1240) of binary: /usr/bin/python
Traceback (most recent call last):
  File "/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_10:00:00
  host      : node01
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 1240)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""  # noqa: E501


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_read(encoding: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With and without its mark, as a shell of Windows redirects into it."""
    log = tmp_path / "train.log"
    log.write_bytes(
        (ROW.format(number=7) + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n").encode(encoding)
    )
    assert run(capsys, "explain", log)[0] == 64
    assert "2.500000" in run(capsys, "tail", log, "--loss")[1]


def test_binary_is_not_taken_for_utf16(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"a\0\1\0c\0" + b"\n" + ROW.format(number=7).encode())
    assert "2.500000" in run(capsys, "tail", log, "--loss")[1]


def test_a_cut_file_is_said_in_the_verdict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = gzip.compress("".join(ROW.format(number=number * number) for number in range(20_000)).encode())
    log = tmp_path / "train.log.gz"
    log.write_bytes(whole[: len(whole) // 2])
    code, text = run(capsys, "explain", log)
    assert code == 78
    assert "train.log.gz ends in the middle of its compressed data" in text
    log.write_bytes(whole)
    assert run(capsys, "explain", log)[0] == 0


def test_a_file_to_come_is_waited_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``tail -F`` does; without -f, or where only a job can be meant, there is nothing to wait for."""
    log = tmp_path / "to_come.log"
    assert resolve([str(log)], may_come=True).paths == (log,)
    for word, may_come in ((str(log), False), ("to_come", True), (str(tmp_path / "no" / "x.log"), True)):
        with pytest.raises(UnknownJobError):
            resolve([word], may_come=may_come)
    looks = iter(
        [
            lambda: log.write_text(ROW.format(number=1)),
            lambda: log.write_text(ROW.format(number=1) + ROW.format(number=2)),
        ]
    )

    def sleep(_: float) -> None:
        action = next(looks, None)
        if action is None:
            raise KeyboardInterrupt
        action()

    monkeypatch.setattr("hpcjob.logs.show.time.sleep", sleep)
    main(["tail", "-f", "--loss", str(log)])
    output = capsys.readouterr()
    assert output.out.count("2.500000") == 2
    assert f"no log yet in {log}; waiting" in output.err


@pytest.mark.parametrize("view", [[], ["--loss"]])
def test_rows_are_counted_without_copies(view: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """-n 5 is five rows, though each of 16 ranks tells every iteration, or the engine and the trainer do."""
    log = tmp_path / "x.log"
    log.write_text(
        "".join(f"[rank{rank}]: step: {step}  loss:  2.5  tps: 10\n" for step in range(1, 41) for rank in range(16))
    )
    rows = [
        line.split()[0] for line in run(capsys, "tail", log, "-n", "5", *view)[1].splitlines() if "2.500000" in line
    ]
    assert rows == ["36", "37", "38", "39", "40"]
    pair = (
        "steps: {number} loss: 2.5000 iter time (s): 0.100 samples/sec: 10.000\n"
        " samples/sec: 10.0 | iteration {number:8d}/     100 | elapsed time per iteration (ms): 100.0 "
        "| lm_loss: 2.5E+00 |\n"
    )
    log.write_text("".join(pair.format(number=number) for number in range(1, 41)))
    rows = [
        line.split()[0] for line in run(capsys, "tail", log, "-n", "5", *view)[1].splitlines() if "2.500000" in line
    ]
    assert rows == [f"{number}/100" for number in range(36, 41)]


def test_a_restart_within_the_last_rows_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An iteration that was done twice is two rows."""
    log = tmp_path / "x.log"
    log.write_text("".join(ROW.format(number=number) for number in (1, 2, 3, 4, 3, 4, 5)))
    rows = [line.split()[0] for line in run(capsys, "tail", log, "-n", "5", "--loss")[1].splitlines()[1:]]
    assert rows == ["3", "4", "3", "4", "5"]


@pytest.mark.parametrize("own_file", [True, False])
def test_a_programs_last_words_stand_for_torchruns_hint(
    own_file: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Where torchrun only says how to enable tracebacks, the rank's own last line is the evidence."""
    words = "checksum of shard 7 differs, giving up"
    log = tmp_path / "12_job.out"
    if own_file:
        (tmp_path / "12_1_log.out").write_text(f"begin\n{words}\n")
        log.write_text("begin\n" + TORCHRUN)
        where = "12_1_log.out"
    else:
        log.write_text(f"begin\n[rank1]: {words}\n[rank0]: something else\n" + TORCHRUN)
        where = "12_job.out:2"
    code, text = run(capsys, "explain", tmp_path)
    assert code == 76
    (evidence,) = [line for line in text.splitlines() if line.startswith("evidence")]
    assert words in evidence
    assert where in evidence


def test_a_hint_is_not_taken_from_torchruns_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("neoxlite: train.yml: key hidden_siz is not known\n  time      : 2026-11-30_10:00:00\n")
    text = run(capsys, "explain", log)[1]
    assert "fix        Fix the file, key or value that the message names." in text
