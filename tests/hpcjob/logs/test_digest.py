"""The default view: iterations, attention, NCCL in a line, where the run stands; while the log grows, in any way."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli import main
from hpcjob.logs.digest import Digest
from hpcjob.logs.digest_show import show_digest
from hpcjob.logs.failures import FailureReport
from hpcjob.logs.filters import LineFilter
from hpcjob.logs.follow import Follower
from hpcjob.logs.metrics import Metrics
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.nccl_line import fold_nccl
from hpcjob.logs.output import Output
from hpcjob.logs.progress import Progress
from hpcjob.logs.sources import listed
from hpcjob.logs.views import LossView

from .conftest import line
from .test_reports import nccl_of, traceback

NEOX = (
    " samples/sec: 32.000 | iteration {i:8d}/    1000 | elapsed time per iteration (ms): 1000.0 | learning rate: "
    "1.000E-04 | approx flops per GPU: 40.0TFLOPS | lm_loss: 2.5E+00 | number of skipped iterations:   0 | number of "
    "nan iterations:   0 |\n"
)
START = "hpcjob: 2026-11-29T12:00:00+00:00 job 12 on node00: 2 nodes\n"


def iterations(first: int, last: int) -> str:
    return "".join(NEOX.format(i=number) for number in range(first, last + 1))


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    assert main(["tail", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


class Screen(Output):
    """Remembers the latest status, as a terminal shows it."""

    def __init__(self, stream: io.StringIO) -> None:
        super().__init__(stream)
        self.shown: list[str] = []

    def status(self, fields: Any) -> None:
        self.shown = list(fields)


def follow(path: Path, steps: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Screen]:
    """Show a file while something happens to it between two looks; return what was written, and the screen."""
    monkeypatch.setattr("hpcjob.logs.digest_show.time.sleep", lambda _: None)
    out = io.StringIO()
    screen = Screen(out)
    todo = iter(steps)

    def ended() -> bool:
        step = next(todo, None)
        if step is not None:
            step()
        return step is None

    digest = Digest(
        screen, LossView(screen, Metrics(None), one_run=True), FailureReport(), Progress(), main=lambda _: True
    )
    show_digest(Follower(listed([path]), wanted=digest.wanted(rows=False)), digest, screen, count=20, ended=ended)
    return out.getvalue().splitlines(), screen


def test_a_run_that_failed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """640 lines of NCCL are one, the last iterations stand in a table, 16 equal tracebacks are one row."""
    log = tmp_path / "日本.log"
    text = START + "".join(nccl_of(rank) for rank in range(16)) + iterations(1, 50)
    text += "".join(traceback("ValueError: 値", prefix=f"[rank{rank}]: ") for rank in range(16))
    log.write_text(text, encoding="utf-8")
    lines = run(capsys, log, "-n", 2)
    assert lines[0] == "NCCL 2.21.5, 16 ranks, IB, GDR on, NVLS on: ok"
    assert [row.split()[0] for row in lines[1:4]] == ["iteration", "49/1000", "50/1000"]
    assert lines[4] == "! exception    ranks 0-15 (x16): ValueError: 値"
    assert not any("Channel" in row or "Init COMPLETE" in row for row in lines)


def test_plain_lines_where_nothing_better_is_known(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A log of another kind shows its last lines as they are."""
    (tmp_path / "x.log").write_text("".join(f"row {number}\n" for number in range(100)))
    assert run(capsys, tmp_path / "x.log") == [f"row {number}" for number in range(90, 100)]
    assert run(capsys, tmp_path / "x.log", "-n", 2) == ["row 98", "row 99"]
    assert len(run(capsys, tmp_path / "x.log", "-n", "all")) == 100


def test_the_frames_of_a_warning_hide_no_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """torch prints a dozen of them where an agent of torchrun leaves the exit barrier before another."""
    warning = (
        "[W1130 20:00:00.0 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3): Connection reset by peer"
    )
    frames = [f"frame #{number}: c10d::TCPStore::wait() + 0x1a2 (0x7f in libtorch_cpu.so)" for number in range(12)]
    (tmp_path / "job.log").write_text("\n".join(["rank 0 says 42", warning, *frames]) + "\n")
    assert "rank 0 says 42" in run(capsys, tmp_path / "job.log")


def test_a_progress_bar_that_goes_on_tells_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours without a newline are no hours without news."""
    log = tmp_path / "x.log"
    bar = " {n}%| | {n}/200 [00:10<03:10,  1.00it/s, train_loss=2.5]\r"
    log.write_text("start\n")
    _, screen = follow(
        log, [lambda: None, lambda: add(log, bar.format(n=10)), lambda: add(log, bar.format(n=11))], monkeypatch
    )
    assert screen.shown == ["iteration 11/200", "loss 2.5", "ETA 3:09"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "NCCL 2.21.5, 16 ranks, IB, GDR on, NVLS on: ok"),
        (
            {"complete": False},
            "NCCL 2.21.5, 16 ranks, IB, GDR on, NVLS on: 0 of 16 ranks ready, not yet 0-15",
        ),
        (
            {"network": "Socket"},
            "NCCL 2.21.5, 16 ranks, TCP sockets, NVLS on: nodes talk over TCP sockets",
        ),
    ],
)
def test_nccl_in_one_line(change: dict[str, Any], text: str) -> None:
    """What two nodes tell, put together; what is wrong instead of ok."""
    report = NcclReport(listening=True)
    for rank in range(16):
        for part in nccl_of(rank, **change).splitlines():
            report.read(line(part))
    assert fold_nccl(report).text == text


def test_adapters_and_their_rate_are_told() -> None:
    """Eight adapters of 400 Gbit/s are 8 x NDR; where NCCL does not tell the rate the profile may."""
    listed_hcas = " ".join(f"[{number}]mlx5_{number}:1/IB" for number in range(8))
    texts = [f"NCCL INFO NET/IB : Using {listed_hcas} [RO]; OOB eth0:10.0.0.1<0>", "NCCL INFO Using network IB"]
    speed = "NCCL INFO NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=400000 context=0x55 pciPath=/sys ar=1"
    report, told = NcclReport(listening=True), NcclReport(listening=True)
    for text in texts:
        report.read(line(f"node01:1:2 [0] {text}"))
    for text in [*texts, speed]:
        told.read(line(f"node01:1:2 [0] {text}"))
    assert fold_nccl(report).text == "NCCL, 1 processes, IB 8 x HCA: starting"
    assert fold_nccl(report, link_gbps=400).text == fold_nccl(told).text == "NCCL, 1 processes, IB 8 x NDR: starting"


def test_status_tells_where_the_run_stands() -> None:
    """Iteration, loss, rate, time left, next checkpoint, walltime left; a hang is seen by what does not come."""
    now = 1_796_040_000.0  # 2026-11-30 12:00:00 UTC, a day after START
    progress = Progress(walltime_s=2 * 86400, clock=lambda: now)
    progress.line(line("  checkpoint_factor ............... 100........updated"))
    progress.line(line(START.rstrip()))
    (event,) = LossView(Output(io.StringIO()), Metrics(None)).pick_all(line(NEOX.format(i=940).rstrip()))
    progress.event(event)
    assert progress.fields(live=True) == [
        "iteration 940/1000",
        "loss 2.5",
        "32 samples/s",
        "40.0 TFLOPS",
        "ETA 1:00",
        "checkpoint in 1:00",
        "walltime left 1d 00:00:00",
    ]
    now += 600
    assert progress.fields(live=True)[-1] == "NO ITERATION FOR 10:00"
    assert len(progress.fields(live=False)) == 6


def test_follow_of_what_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first iteration lines are shown as they are, then iterations; errors once, and when twice as many."""
    log = tmp_path / "12_job.out"
    log.write_text(START + "loading data\n")

    def append(text: str) -> Callable[[], object]:
        return lambda: add(log, text)

    errors = [append(traceback("ValueError: x", prefix=f"[rank{rank}]: ")) for rank in range(4)]
    lines, screen = follow(
        log,
        [lambda: None, append("still loading\n"), append(iterations(1, 2) + "noise\n"), append("noise\n"), *errors],
        monkeypatch,
    )
    assert lines[:3] == [START.rstrip(), "loading data", "still loading"]
    assert [row.split()[0] for row in lines[3:6]] == ["iteration", "1/1000", "2/1000"]
    assert "noise" not in lines[6:]
    shown = [row for row in lines if row.startswith("! exception")]
    assert [row.split(": ")[0] for row in shown] == [
        "! exception    rank 0", "! exception    ranks 0-1 (x2)", "! exception    ranks 0-3 (x4)",
    ]  # fmt: skip
    assert screen.shown[0] == "iteration 2/1000"


def test_follow_through_a_requeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same job starts again: its log is appended to, or written anew and soon longer, or another file."""
    log = tmp_path / "12_job.out"
    log.write_text(START + iterations(1, 9))
    other = tmp_path / "other"

    def replace() -> None:
        other.write_text(START + iterations(5, 6))
        other.replace(log)

    lines, _ = follow(
        log,
        [
            lambda: None,
            lambda: add(log, START + iterations(7, 8)),
            lambda: log.write_text("another beginning\n" + iterations(3, 40)),
            replace,
        ],
        monkeypatch,
    )
    numbers = [int(row.split("/")[0]) for row in lines if re.match(r" *\d+/1000", row)]
    assert numbers == [*range(1, 10), 7, 8, *range(3, 41), 5, 6]
    assert [row for row in lines if row.endswith("begins again")] == [f"==> {log} begins again"] * 2
    assert lines.count(START.rstrip()) == 2


def test_json_holds_all_events(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without a view --json is the whole stream: training, NCCL, errors, then what was gathered."""
    log = tmp_path / "x.log"
    log.write_text(
        START + "".join(nccl_of(rank, complete=rank != 3) for rank in range(15)) + iterations(1, 3)
        + "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n"
        + "".join(traceback("ValueError: x", prefix=f"[rank{rank}]: ") for rank in range(2))
    )  # fmt: skip
    events = [json.loads(row) for row in run(capsys, log, "--json")]
    kinds = [event["event"] for event in events]
    assert {
        "job",
        "finding",
        "iteration",
        "loss_scale",
        "traceback",
        "error_group",
        "communicator",
        "nccl_host",
    } == set(kinds)
    (communicator,) = [event for event in events if event["event"] == "communicator"]
    assert (communicator["size"], communicator["ready"]) == (16, 14)
    assert (communicator["missing"], communicator["silent"]) == ([3, 15], [15])
    group = next(event for event in events if event["event"] == "error_group" and event["kind"] == "traceback")
    assert (group["count"], group["ranks"], group["text"]) == (2, [0, 1], "ValueError: x")
    (host,) = [event for event in events if event["event"] == "nccl_host" and event["host"] == "node01"]
    assert (host["networks"], host["gdr"], host["nvls"], host["channels"]) == (["IB"], True, True, 16)


def test_a_rank_that_prints_what_another_printed_is_one_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Where each rank writes its own file, an iteration stands once in the table of the folder."""
    for rank in range(3):
        (tmp_path / f"rank_{rank}.log").write_text(iterations(1, 4))
    rows = run(capsys, tmp_path, "-n", 3)
    assert [row.split()[0] for row in rows] == ["iteration", "2/1000", "3/1000", "4/1000"]


MERGED = (
    "node01:7:7 [0] NCCL INFO comm 0x7f rank 0 nranks 8 cudaDev 0 busId 1000 - Init COMPLETE\n"
    "0: a\n1: b\n3: d\nnode02: [rank4]: e\nnode02: f\n"
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--rank", "1,3-4"], ["1: b", "3: d", "node02: [rank4]: e"]),
        (["--host", "node02"], ["node02: [rank4]: e", "node02: f"]),
        (["--host", "NODE01.cluster,x"], ["0: a"]),
        (["--grep", "^0: a|f$"], ["0: a", "node02: f"]),
        (["--grep", "e", "--rank", "4"], ["node02: [rank4]: e"]),
    ],
)
def test_filters(capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], expected: list[str]) -> None:
    """Ranks and hosts by prefix (NCCL tells where a rank runs), and text."""
    log = tmp_path / "merged.log"
    log.write_text(MERGED)
    assert [row for row in run(capsys, log, "--raw", "-n", "all", *options) if "NCCL" not in row] == expected


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2026-01-01T10:00:00", ["[2026-01-01 10:00:00] b", "c", "2026-01-01T10:00:01.5 d"]),
        ("2026-01-01 10:00:01", ["2026-01-01T10:00:01.5 d"]),
        ("2026-01-01 10:00:02", []),
    ],
)
def test_since(capsys: pytest.CaptureFixture[str], tmp_path: Path, since: str, expected: list[str]) -> None:
    """From a time on; a line without one has that of the line before."""
    log = tmp_path / "x.log"
    log.write_text("first\n[2026-01-01 09:00:00] a\n[2026-01-01 10:00:00] b\nc\n2026-01-01T10:00:01.5 d\n")
    assert run(capsys, log, "--raw", "--since", since) == expected


def test_since_by_the_times_of_the_trainer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Lines of a trainer have no times; its metrics tell when an iteration was logged."""
    (tmp_path / "12_job.out").write_text(START + iterations(1, 5))
    (tmp_path / "metrics.jsonl").write_text(
        "".join(f'{{"iteration": {n}, "time": "2026-11-29T12:0{n}:00+00:00"}}\n' for n in range(1, 6))
    )
    rows = run(capsys, tmp_path, "--since", "2026-11-29T12:03:30+00:00")
    assert [row.split()[0] for row in rows] == ["iteration", "4/1000", "5/1000"]
    rows = run(capsys, tmp_path, "--loss", "--since", "2026-11-29T12:03:30+00:00")
    assert [row.split()[0] for row in rows] == ["iteration", "4/1000", "5/1000"]
    (tmp_path / "x.log").write_text("a\n")
    assert main(["tail", str(tmp_path / "x.log"), "--raw", "--since", "1h"]) == 0
    assert "has no times" in capsys.readouterr().err


def test_hosts_of_rank_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In a job's folder a rank's host is told by the hostfile, a file of NCCL by its name."""
    (tmp_path / "hostfile").write_text("node01 slots=2\nnode02 slots=2\n")
    for rank in range(4):
        (tmp_path / f"12_{rank}_log.out").write_text(f"of {rank}\n")
    assert [row for row in run(capsys, tmp_path, "--host", "node02", "--raw") if row.startswith("of")] == [
        "of 2",
        "of 3",
    ]
    (tmp_path / "nccl.node01.7.log").write_text("node01:7:8 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n")
    (tmp_path / "nccl.node02.7.log").write_text("node02:7:8 [0] NCCL INFO NCCL version 2.18.1+cuda12.4\n")
    rows = run(capsys, tmp_path, "--host", "node02", "--nccl")
    assert [row.split()[1:4] for row in rows if "2." in row] == [["node02", "?", "2.18.1+cuda12.4"]]


def test_filter_of_a_time_in_the_middle_of_a_large_file(tmp_path: Path) -> None:
    """The place is found by halving: most of the file is not read."""
    from hpcjob.logs.since import offset_since, parse_since

    log = tmp_path / "x.log"
    rows = [f"[2026-01-{day:02d} {hour:02d}:{minute:02d}:00] {'x' * 900}\n" for day in range(1, 11)
            for hour in range(24) for minute in range(0, 60, 20)]  # fmt: skip
    log.write_text("".join(rows))
    offset = offset_since(log, parse_since("2026-01-07T12:00"))
    place = next(index for index, row in enumerate(rows) if row.startswith("[2026-01-07 12:00"))
    exact = sum(map(len, rows[:place]))
    assert exact - 128 * 1024 <= offset <= exact


@pytest.mark.parametrize("text", ["", "soon", "25:00", "2026-13-01", "-5m", "25h99", "9" * 30])
def test_times_that_are_none(text: str) -> None:
    """They are refused in one line."""
    from hpcjob.errors import InputError
    from hpcjob.logs.since import parse_since

    with pytest.raises(InputError, match="is not a time"):
        parse_since(text)


def test_filter_counts_what_passed() -> None:
    """Ranks that were not asked for are remembered, for the message when nothing was found."""
    wanted = LineFilter(ranks={1})
    assert not wanted.wants(line("[rank2]: x"))
    assert wanted.wants(line("[rank1]: x"))
    assert (wanted.seen, wanted.others) == (1, {2})
