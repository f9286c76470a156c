"""``hpcjob tail`` as it is typed."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli import main
from hpcjob.logs.failures import FailureReport
from hpcjob.logs.follow import read_stream
from hpcjob.logs.metrics import Metrics
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.output import Output
from hpcjob.logs.report_view import ReportView
from hpcjob.logs.show import show_stream
from hpcjob.logs.views import LossView, View

from .conftest import tail
from .jobs_grammar import Job


def test_lines_of_a_directory(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """The job's log and the scheduler's output, each under its name, as tail shows several files."""
    lines = tail(capsys, folder, "--raw", "-n", 1)
    rule = "-" * 123
    assert lines == [
        f"==> {folder}/12_job.out <==",
        rule,
        "",
        f"==> {folder}/12_sched.out <==",
        "=>> PBS: job killed: walltime 3610 exceeded limit 3600",
    ]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", [], "job.log: empty"),
        ("", ["--raw"], "job.log: empty"),
        ("", ["--loss", "--json"], "job.log: empty"),
        ("2026-01-01 00:00:00 a\n", ["--since", "2026-01-02"], "nothing since 2026-01-02 00:00:00+00:00"),
        ("2026-01-01 00:00:00 a\n", ["--since", "2026-01-02", "--raw"], "nothing since 2026-01-02 00:00:00+00:00"),
        ("2026-01-01 00:00:00 a\n", ["--since", "2026-01-02", "--loss"], "nothing since 2026-01-02 00:00:00+00:00"),
        ("2026-01-01 00:00:00 a\n", ["--since", "2025-01-01", "--grep", "b"],
         "no such line since 2025-01-01 00:00:00+00:00"),
        ("a\n", ["--since", "2026-01-02"], "this log has no times, so --since finds nothing in it"),
        ("a\n", ["--json"], "nothing to show (--raw shows the lines)"),
    ],
)  # fmt: skip
def test_nothing_to_show_is_said(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    options: list[str],
    said: str,
) -> None:
    """One line on stderr says why nothing is on stdout; the code stays 0."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    Path("job.log").write_text(text)
    time.tzset()
    try:
        assert main(["tail", "job.log", *options]) == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"hpcjob tail: {said}\n")


def test_lines_of_a_file(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """A file is shown as it is; 'all' begins at its start, 0 shows nothing, several stand under their names."""
    log = folder / "12_job.out"
    assert tail(capsys, log, "--raw", "-n", "all") == log.read_text().splitlines()
    assert tail(capsys, log, "--raw", "-n", "0") == []
    assert tail(capsys, log, "--raw", "-n", "9" * 23) == log.read_text().splitlines()
    assert tail(capsys, log, "--raw", "-n", "9" * 5000) == log.read_text().splitlines()
    assert tail(capsys, log, "--raw", "-n", "3") == log.read_text().splitlines()[-3:]
    ranks = [folder / f"12_{rank}_log.out" for rank in (0, 1)]
    assert tail(capsys, *ranks, "--raw", "-n", 1) == [
        f"==> {ranks[0]} <==",
        "two of 0",
        "",
        f"==> {ranks[1]} <==",
        "two of 1",
    ]


def test_loss(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Aligned rows: tokens a second by the sequence length that the log lists, time left, NaN and skips marked."""
    assert tail(capsys, folder, "--loss") == [
        "iteration       loss         lr   tokens/s  TFLOPS    s/iter          ETA",
        "        2   4.167700                66,359             0.123",
        "        3   4.185200                 2,458             3.334",
        "    iteration       loss         lr   tokens/s  TFLOPS    s/iter          ETA",
        "   100/320000   7.123458  1.000e-04     56,005     8.5     1.170  4d 07:59:07  scale 4096",
        "     1/320000  10.900000  1.600e-08     11,735    34.6     2.792 10d 08:12:45",
        "320000/320000   2.052500  1.600e-05     23,470     3.6     2.792         0:00  2 skipped",
        "    10/320000   9.500000  1.000e-04     65,536     9.9     1.000  3d 16:53:10  2 NaN, 2 skipped, scale 65536",
        "    20/320000        NaN  1.000e-04     65,536     9.9     1.000  3d 16:53:00  NOT FINITE",
        "     5/320000             1.000e-04     32,768     5.0     2.000  7d 09:46:30  "
        "5 NaN, no loss, 5 skipped, scale 2048",
        "          iteration       loss         lr   tokens/s  TFLOPS    s/iter          ETA",
        "123456700/987654321   1.500000  1.000e-04    131,072    19.9     0.500 5001d 03:26:50  MFU 1.5%",
        "          10/320000  1.230e-04  0.000e+00    163,840   149.1     0.050      4:26:40  MFU 47.8%",
        "               1000   2.345678" + " " * 55 + "validation, perplexity 10.44",
        "                     11.000000" + " " * 55
        + "validation at the end of training for val data, perplexity 5.987e+04",
    ]  # fmt: skip


def test_loss_counts_iterations(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """-n counts rows of the table, not lines of the log."""
    rows = tail(capsys, folder, "--loss", "-n", 3)
    assert [row.split()[0] for row in rows] == ["iteration", "10/320000", "1000", "11.000000"]


def test_loss_takes_what_the_log_lacks_from_the_metrics(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """metrics.jsonl fills columns; the log's own numbers stay; damaged and other lines do no harm."""
    (tmp_path / "7_job.out").write_text("steps: 10 loss: 4.1677 iter time (s): 0.500 samples/sec: 8.000\n")
    full = {"iteration": 10, "train_iters": 100, "loss": 9.0, "lr": 1e-3, "samples_per_s": 8.0, "tokens_per_s": 512.0}
    validation = {"event": "validation", "iteration": 10, "loss": 1.0}
    lines = [json.dumps(full), json.dumps(validation), '{"iteration": "x"}', "\0\0", '{"iteration": 20, "lo']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert (
        tail(capsys, tmp_path, "--loss")[-1]
        == "   10/100   4.167700  1.000e-03        512             0.500         0:45"
    )


def test_the_same_iteration_is_one_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, golden: dict[str, Any]
) -> None:
    """The pipeline engine's line before the trainer's own line for the same iteration is not a second row."""
    own = golden["iteration_line"][0]["line"]
    (tmp_path / "log").write_text(
        "steps: 90 loss: 1.0000 iter time (s): 0.123 samples/sec: 32.402\n"
        "steps: 100 loss: 1.0000 iter time (s): 0.123 samples/sec: 32.402\n" + own
    )
    rows = tail(capsys, tmp_path / "log", "--loss")
    assert [row.split()[0] for row in rows if "iteration" not in row] == ["90", "100/320000"]
    assert rows[-1].split()[3] == "27.3"  # samples/s, as no sequence length is known


@pytest.mark.parametrize(
    ("flops", "rate", "shown"),
    [
        ("16.4GFLOPS", "9.009", ["288", "0.0164"]),
        ("14.0GFLOPS", "9.009", ["288", "0.0140"]),  # the point stands below the point
        ("0.0TFLOPS", "0.123", ["3.94"]),  # nothing is told of it
        ("431.2TFLOPS", "1234.5", ["39,504", "431.2"]),
    ],
)
def test_as_many_digits_as_tell_something(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    golden: dict[str, Any],
    flops: str,
    rate: str,
    shown: list[str],
) -> None:
    """Below 1,000 a rate would else look like thousands, and the arithmetic of a small run on a CPU like none."""
    own = golden["iteration_line"][0]["line"].replace("8.5TFLOPS", flops).replace("27.346", rate)
    (tmp_path / "log").write_text("  seq_length ...................... 32\n" + own)
    assert tail(capsys, tmp_path / "log", "--loss")[-1].split()[3:-5] == shown


def test_json(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """One object a line, with file and byte where it stands; nothing else."""
    data = (folder / "12_job.out").read_bytes()
    for arguments, kinds in (
        (["--loss"], {"iteration", "validation"}),
        (["--raw"], {"line"}),
        (["--errors"], {"finding", "error_group"}),
        ([], {"iteration", "validation", "finding", "error_group", "communicator", "nccl_host"}),
    ):
        events = [json.loads(text) for text in tail(capsys, folder, "--json", *arguments)]
        assert {event["event"] for event in events} == kinds
        for event in events:
            if event["event"] == "iteration" and event["source"].endswith("12_job.out"):
                assert f"{event['iteration']}".encode() in data[event["offset"] :].split(b"\n")[0]
    event, group = [json.loads(text) for text in tail(capsys, folder, "--errors", "--json")]
    assert (group["rule"], group["count"]) == ("pbs-walltime", 1)
    assert (event["rule"], event["topic"], event["fields"]) == (
        "pbs-walltime", "walltime", {"used": "3610", "limit": "3600"},
    )  # fmt: skip


def test_nccl_and_errors(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """The whole of all files is read, whatever its length."""
    with (folder / "12_1_log.out").open("a") as file:
        file.write("ValueError is not raised here\n" * 20_000)
    assert tail(capsys, folder, "--nccl") == [
        "  init         1 communicator of 2 ranks ready",
        "               hosts   ranks  NCCL             network  start over",
        "  host         node01  0-1    2.21.5+cuda12.4  ?        ?",
    ]
    assert tail(capsys, folder, "--errors") == [
        "! walltime     the walltime of 3600 s was over (PBS)",
        "               =>> PBS: job killed: walltime 3610 exceeded limit 3600",
        "               12_sched.out, byte 0",
        "               -> Resume from the last checkpoint, or ask for a longer walltime.",
    ]
    (folder / "12_sched.out").unlink()
    assert tail(capsys, folder, "--errors") == ["no error found"]


def test_rank(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    """In a directory a rank's own file, in a merged log the lines with its prefix."""
    assert tail(capsys, folder, "--rank", 1, "--raw") == ["one of 1", "two of 1"]
    assert tail(capsys, folder, "--rank", 1)[:2] == ["one of 1", "two of 1"]  # nothing better is known of it
    assert tail(capsys, folder, "--rank", 1, "--nccl")[-1].split()[1:4] == ["node01", "1", "2.21.5+cuda12.4"]
    merged = tmp_path / "merged.log"
    merged.write_text("0: a\n1: b\n[rank1]: c\n0: d\n[1,1]<stdout>:e\n")
    assert tail(capsys, merged, "--rank", 1, "--raw") == ["1: b", "[rank1]: c", "[1,1]<stdout>:e"]
    assert tail(capsys, merged, "--rank", 0, "--raw", "-n", 1) == ["0: d"]
    (tmp_path / "bare.log").write_text("a\n")
    assert main(["tail", str(tmp_path / "bare.log"), "--rank", "7", "--raw"]) == 0
    assert "no line of rank 7" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--raw"], ["--raw", "-n", "all"], ["--loss"], ["--errors"], ["--nccl"]])
def test_a_rank_that_the_job_does_not_have(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, options: list[str]
) -> None:
    """It is refused, and the ranks there are are named: of a folder by its files, of a merged log by its prefixes."""
    assert main(["tail", str(folder), "--rank", "7", *options]) == 2
    error = capsys.readouterr().err
    assert "there is no rank 7" in error
    assert "0-1" in error
    if "--raw" in options:
        merged = tmp_path / "merged.log"
        merged.write_text("0: a\n1: b\n")
        assert main(["tail", str(merged), "--rank", "7", *options]) == 2
        assert "0-1" in capsys.readouterr().err


def test_a_table_that_begins_with_a_checkpoint_has_one_header(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, golden: dict[str, Any]
) -> None:
    """Rows before the first iteration are laid out as wide as it needs; a log without any iteration shows them too."""
    log = tmp_path / "x.log"
    saved = "  successfully saved checkpoint at iteration      90 to ckpt\n"
    log.write_text(saved + golden["iteration_line"][0]["line"])
    rows = tail(capsys, log, "--loss")
    assert [row.split()[0] for row in rows] == ["iteration", "90", "100/320000"]
    log.write_text(saved)
    assert [row.split()[0] for row in tail(capsys, log, "--loss")] == ["iteration", "90"]
    log.write_text("  seq_length ...................... 32\n" + golden["iteration_line"][0]["line"] + saved)
    for rows in (tail(capsys, log, "--loss", "-n", 1), tail(capsys, log, "--loss")):
        assert rows[0].split()[3] == "tokens/s"  # whichever rows are shown


def test_a_load_is_one_row(capsys: pytest.CaptureFixture[str], tmp_path: Path, golden: dict[str, Any]) -> None:
    """GPT-NeoX tells path and iteration of one load on two lines; a load of weights alone has no iteration."""
    log = tmp_path / "job.out"
    load = "  successfully loaded ckpt/global_step10\n"
    resumed = f"{load}Loading checkpoint and starting from iteration 10\n"
    log.write_text(resumed + golden["iteration_line"][0]["line"] + resumed + load)
    assert main(["tail", str(log), "--loss", "-n", "4"]) == 0
    rows = [row.split() for row in capsys.readouterr().out.splitlines() if "loaded" in row]
    told = ["checkpoint", "loaded:", "ckpt/global_step10"]
    assert rows == [["10", *told], ["10", *told], told]
    assert main(["tail", str(log), "--loss", "--json"]) == 0
    assert capsys.readouterr().out.count('"loaded"') == 5


def test_files_with_a_name_like_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only such as a slip leads to are offered."""
    monkeypatch.chdir(tmp_path)
    for name in ("small", "ckpt", "start", "trian.log"):
        (tmp_path / name).touch()
    for wanted, told in (("train.log", True), (f"{tmp_path}/train.log", True), ("nosuch.log", False)):
        assert main(["explain", wanted]) == 2
        error = capsys.readouterr().err
        assert ("trian.log" in error, "small" in error) == (told, False)


@pytest.mark.parametrize("options", [[], ["-n", "all"], ["--json"]])
def test_a_log_without_a_loss_is_said_to_be_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str]
) -> None:
    """An empty table says why on stderr; stdout stays empty for programs."""
    (tmp_path / "x.log").write_text("hello\n")
    assert main(["tail", str(tmp_path / "x.log"), "--loss", *options]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "no iteration and no loss found" in err


def test_json_of_the_first_line_has_its_offset(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Byte 0 is a place as any other."""
    events = [json.loads(text) for text in tail(capsys, folder / "12_1_log.out", "--raw", "--json")]
    assert [(event["offset"], event["text"]) for event in events] == [(0, "one of 1"), (9, "two of 1")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "few"], "neither a number nor 'all'"),
        (["-n", "-3"], "neither a number nor 'all'"),
        (["--rank", "-1"], "not a list of ranks"),
        (["--grep", "("], "not a regular expression"),
        (["--since", "soon"], "is not a time"),
        (["nothing-here-a", "nothing-here-b"], "nothing-here-a: no file"),
        (["~nosuchuser/x.log"], "no file '~nosuchuser/x.log' is here"),
    ],
)
def test_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    """What cannot be meant is refused, naming it."""
    assert main(["tail", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_imports_stay_light() -> None:
    """Showing a file imports neither torch nor submitit, nor rich where nobody sees colours."""
    code = (
        "import sys; from hpcjob.cli import main; main(['tail', '/dev/null', '--loss'])\n"
        "print([m for m in ('torch', 'submitit', 'rich', 'numpy', 'yaml', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_compressed_logs(capsys: pytest.CaptureFixture[str], folder: Path, suffix: str) -> None:
    """Every view reads a compressed log like a plain one; -f shows it and waits for nothing of it."""
    plain = folder / "12_job.out"
    pack = {".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    packed = folder.parent / f"12_job.out{suffix}"
    packed.write_bytes(pack(plain.read_bytes()))
    for options in (["--raw", "-n", "all"], ["--raw", "-n", "3"], ["--loss"], ["--errors"], []):
        assert tail(capsys, packed, *options) == tail(capsys, plain, *options)


def line_by_line(log: Path, options: list[str]) -> list[str]:
    """The same view with every line of the log made an object."""
    out = io.StringIO()
    output = Output(out, json="--json" in options)
    view: View[Any] = {
        "--nccl": lambda: ReportView(output, NcclReport(), ""),
        "--errors": lambda: ReportView(output, FailureReport(), ""),
        "--loss": lambda: LossView(output, Metrics(None)),
    }[options[0]]()
    with log.open("rb") as file:
        lines = read_stream(file.fileno(), str(log))
        show_stream(lines, view, output, count=None, follow=False)
    return out.getvalue().splitlines()


def test_whole_logs_read_by_shape_give_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Reports and the table of a whole log are those of a reader that looks at every line."""
    job = Job(16, 150, 3)
    log = tmp_path / "merged.log"
    ranks = [job.lines(rank) for rank in range(16)]
    longest = max(map(len, ranks))
    lines = [texts[number] for number in range(longest) for texts in ranks if number < len(texts)]
    log.write_text("".join(f"{text}\n" for text in lines))
    for options in (["--nccl"], ["--errors"], ["--loss", "-n", "all"], ["--loss", "-n", "all", "--json"]):
        whole = tail(capsys, log, *options)
        slow = line_by_line(log, options)
        assert len(whole) > 3
        assert [re.sub(r'"line":\d+,', "", row) for row in whole] == slow
