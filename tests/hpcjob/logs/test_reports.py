"""NCCL's summary and the report of errors: folding over ranks, order of blame, tracebacks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hpcjob.logs.errors import ErrorReader
from hpcjob.logs.events import Event, Finding, ProcessEnd, Traceback
from hpcjob.logs.failures import FailureReport
from hpcjob.logs.fold import ranges
from hpcjob.logs.lines import LineParser
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.report import Row, Shown


def feed(report: NcclReport | FailureReport, text: str, source: str = "log", **options: Any) -> None:
    parser = LineParser(source, **options)
    for number, part in enumerate(text.splitlines()):
        report.read(parser.parse(number, part.encode()))


def rows(report: NcclReport | FailureReport) -> list[tuple[str, str, str]]:
    return [(row.role, row.topic, row.text) for row in report.rows()]


def nccl_of(rank: int, *, network: str = "IB", complete: bool = True, size: int = 16) -> str:
    """One rank's lines of NCCL 2.21, eight ranks a node."""
    start = f"node{rank // 8:02d}:{100 + rank}:{200 + rank} [{rank % 8}] NCCL INFO "
    comm = f"comm 0x5{rank:x} rank {rank} nranks {size} cudaDev {rank % 8} nvmlDev {rank % 8} busId 1b000 commId 0xab"
    lines = [
        "Bootstrap : Using eth0:10.0.0.1<0>",
        "NCCL version 2.21.5+cuda12.4",
        f"Using network {network}",
        "NVLS multicast support is available on dev 0",
        f"ncclCommInitRank {comm} - Init START",
        *(f"Channel {channel:02d}/0 : {rank}[0] -> {rank + 1}[1] via P2P/CUMEM" for channel in range(16)),
        f"Channel 00/0 : {rank}[7] -> {rank + 1}[0] [send] via NET/{network}/0"
        + ("/GDRDMA" if network == "IB" else ""),
        *(f"Channel {channel:02d}/16 :    0   1   2" for channel in range(16)),
    ]
    if complete:
        lines.append(f"ncclCommInitRank {comm} - Init COMPLETE")
    return "".join(f"{start}{text}\n" for text in lines)


def test_sixteen_ranks_that_agree_are_one_row() -> None:
    """640 lines become a communicator and one row of hosts."""
    report = NcclReport()
    for rank in range(16):
        feed(report, nccl_of(rank))
    init, head, hosts = rows(report)
    assert init == ("info", "init", "1 communicator of 16 ranks ready")
    assert re.split(r" {2,}", head[2]) == [
        "hosts", "ranks", "NCCL", "network", "GDR", "GPU to GPU", "NVLS", "channels", "start over",
    ]  # fmt: skip
    assert re.split(r" {2,}", hosts[2]) == [
        "node[00-01]", "0-15", "2.21.5+cuda12.4", "IB", "on", "P2P/CUMEM", "on", "16", "eth0",
    ]  # fmt: skip


def test_sockets_between_nodes_are_a_warning_and_within_one_are_not() -> None:
    """TCP on one node is how a single machine works; on two it is what makes training slow."""
    one, two = NcclReport(), NcclReport()
    for rank in range(8):
        feed(one, nccl_of(rank, network="Socket", size=8))
    for rank in range(16):
        feed(two, nccl_of(rank, network="Socket"))
    assert [text for role, _, text in rows(one) if role == "warning"] == []
    assert [text.split(",")[0] for role, _, text in rows(two) if role == "warning"] == ["2 nodes talk over TCP sockets"]


def test_ranks_that_are_not_up_are_named() -> None:
    """A hang at start shows who has not come: begun and not finished, or not even begun."""
    report = NcclReport()
    for rank in range(15):
        feed(report, nccl_of(rank, complete=rank != 9))
    assert ("warning", "init", "14 of 16 ranks ready, not yet 9,15 (not started: 15)") in rows(report)


def test_the_rank_that_differs_stands_out() -> None:
    """One process with another version is a row of its own."""
    report = NcclReport()
    for rank in range(8):
        feed(report, nccl_of(rank, size=8).replace("2.21.5", "2.18.1" if rank == 5 else "2.21.5"))
    versions = [(role, text) for role, topic, text in rows(report) if topic == "version"]
    assert versions == [("warning", "node00: NCCL 2.18.1+cuda12.4 and 2.21.5+cuda12.4 in one job")]


def test_a_host_that_differs_comes_first() -> None:
    """Its row is marked and stands before those of the others; what differs is said before the table."""
    report = NcclReport()
    for rank in range(24):
        feed(report, nccl_of(rank, size=24, network="Socket" if rank // 8 == 1 else "IB"))
    first, *rest = rows(report)
    assert first == ("warning", "network", "node01: TCP sockets, while 2 hosts have network IB")
    table = [(role, text.split()[0]) for role, topic, text in rest if topic == "host"]
    assert table == [("warning", "node01"), ("info", "node[00,02]")]


def test_unknown_warnings_fold_although_numbers_differ() -> None:
    """A warning that no rule knows is shown once, with the number of processes."""
    report = NcclReport()
    for rank in range(16):
        feed(report, f"node01:{rank}:1 [0] x.cc:{rank} NCCL WARN Something odd at 0x{rank:x}a{rank}, size {rank * 10}")
    assert rows(report) == [("warning", "other", "node01: NCCL warns: Something odd at 0x0a0, size 0  x16")]


def test_only_what_changed_is_shown_again() -> None:
    """While following, a row comes again when its count has grown, and then as a repetition."""
    report, shown = NcclReport(), Shown()
    feed(report, nccl_of(0, size=2))
    first = list(shown.changed(report.rows()))
    assert all(not again for _, again in first)
    assert list(shown.changed(report.rows())) == []
    feed(report, nccl_of(1, size=2))
    assert [(row.topic, row.text.split()[0], again) for row, again in shown.changed(report.rows())] == [
        ("init", "1", False),
        ("host", "node00", True),
    ]


def traceback(exception: str, *, place: int = 33, prefix: str = "") -> str:
    lines = [
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 10, in <module>',
        "    main()",
        f'  File "/w/模型.py", line {place}, in forward',
        "    y = f(x)",
        "        ^^^^",
        exception,
    ]
    return "".join(f"{prefix}{text}\n" for text in lines)


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 19.14 GiB. GPU 3 has a total capacity of 79.33 GiB"
REMOTE = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"


def read(text: str) -> list[Event]:
    reader, parser = ErrorReader(), LineParser("log")
    events = [event for part in text.splitlines() for event in reader.read(parser.parse(0, part.encode()))]
    return events + reader.finish()


def test_traceback_tells_exception_and_place() -> None:
    """The exception, its message and the innermost frame; what a rule knows of it comes with it."""
    (event,) = read(traceback(OOM))
    assert isinstance(event, Traceback)
    assert (event.exception, event.at) == ("torch.OutOfMemoryError", "/w/模型.py:33 in forward")
    assert event.rule == "cuda-oom"
    assert event.say == "GPU memory is exhausted (tried to allocate 19.14 GiB)"
    assert event.trace[-1] == OOM


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "{}: ", "node01: [rank{}]: ", "[1,{}]<stderr>:", "[1,{}]<stderr>: "])
def test_interleaved_tracebacks_are_put_together_by_rank(prefix: str) -> None:
    """Two ranks that write line by line in turn give two whole tracebacks."""
    first = traceback("ValueError: a", place=1, prefix=prefix.format(0)).splitlines()
    second = traceback("KeyError: 'b'", place=2, prefix=prefix.format(1)).splitlines()
    mixed = [text for pair in zip(first, second, strict=True) for text in pair]
    events = read("\n".join(mixed))
    assert [(e.rank, e.exception, e.at) for e in events if isinstance(e, Traceback)] == [
        (0, "ValueError", "/w/模型.py:1 in forward"),
        (1, "KeyError", "/w/模型.py:2 in forward"),
    ]
    assert len(events) == 2


def test_tracebacks_mixed_without_prefixes_are_counted() -> None:
    """Where nothing tells the processes apart, both exceptions are still seen, and other output does not end them."""
    one, two = traceback("ValueError: a").splitlines(), traceback("ValueError: a").splitlines()
    mixed = [one[0], two[0], *one[1:4], " 50%|#####", "loss: 3.5", *two[1:6], *one[4:], two[6]]
    events = read("\n".join(mixed))
    assert [event.exception for event in events if isinstance(event, Traceback)] == ["ValueError", "ValueError"]


def test_chained_exceptions_say_that_they_follow() -> None:
    """The second of two chained exceptions is marked; both are there."""
    text = (
        traceback("KeyError: 'x'")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + traceback("myproject.errors.LoadFailed: no x")
    )
    events = read(text)
    assert [(e.exception, e.followed) for e in events if isinstance(e, Traceback)] == [
        ("KeyError", False),
        ("myproject.errors.LoadFailed", True),
    ]


def test_cut_traceback_is_not_lost() -> None:
    """A process that was killed while printing leaves a traceback without exception."""
    (event,) = read("\n".join(traceback("x").splitlines()[:-1]))
    assert isinstance(event, Traceback)
    assert (event.exception, event.at) == ("unknown", "/w/模型.py:33 in forward")


def test_long_traceback_takes_bounded_memory() -> None:
    """A recursion of 10,000 frames keeps its beginning and its end."""
    frames = '  File "/w/a.py", line 5, in f\n    f()\n' * 10_000
    (event,) = read(f"Traceback (most recent call last):\n{frames}RecursionError: maximum recursion depth exceeded")
    assert isinstance(event, Traceback)
    assert event.exception == "RecursionError"
    assert len(event.trace) < 100


TORCHRUN = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2024-05-01_10:00:01
  host      : node01
  rank      : 2 (local_rank: 2)
  exitcode  : -15 (pid: 1235)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 1235
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_10:00:00
  host      : node01
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 1234)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 1234
============================================================
"""


@pytest.mark.parametrize("prefix", ["", "node02: ", "0: "])
def test_torchrun_table(prefix: str) -> None:
    """The table gives each failed process; the root cause is marked."""
    events = read("\n".join(prefix + text for text in TORCHRUN.splitlines()))
    ends = [event for event in events if isinstance(event, ProcessEnd)]
    assert [(end.rank, end.local_rank, end.exit_code, end.root_cause, end.host) for end in ends] == [
        (2, 2, -15, False, "node01"),
        (3, 3, -9, True, "node01"),
    ]


def test_order_of_blame() -> None:
    """The rank that ran out of memory comes first, although 15 others printed their followers' errors before it."""
    report = FailureReport()
    for rank in range(16):
        error = OOM if rank == 3 else REMOTE
        feed(report, traceback(error, place=33 if rank == 3 else 44), f"12_{rank}_log.out", rank=rank)
    assert rows(report) == [
        ("cause", "exception", "rank 3: GPU memory is exhausted (tried to allocate 19.14 GiB)"),
        ("follower", "exception", "ranks 0-2,4-15 (x15): another process ended, or the network failed"),
    ]


def test_torchrun_names_the_first_of_several_causes() -> None:
    """Of two ranks with errors of their own, the one that torchrun saw fail first goes first."""
    report = FailureReport()
    feed(report, traceback("ValueError: late"), "12_0_log.out", rank=0)
    feed(report, traceback("KeyError: 'first'"), "12_3_log.out", rank=3)
    feed(report, TORCHRUN, "12_job.out")
    causes = [text for role, _, text in rows(report) if role == "cause"]
    assert causes == [
        "rank 3: KeyError: 'first'",
        "rank 3 on node01: ended with signal 9 (SIGKILL), the first to fail (torchrun)",
        "rank 0: ValueError: late",
    ]


def test_what_an_exception_says_goes_before_exit_codes() -> None:
    """torchrun's exit code 1 only follows, whichever process it names and wherever it stands."""
    report = FailureReport()
    feed(report, TORCHRUN.replace("-9 (pid", "1 (pid").replace("-15 (pid", "1 (pid"), "12_job.out")
    feed(report, traceback("KeyError: 'first'"), "12_0_log.out", rank=0)
    told = [text for role, _, text in rows(report) if role in ("cause", "symptom")]
    assert told[0] == "rank 0: KeyError: 'first'"
    assert all("exit code 1" in text for text in told[1:])
    assert len(told) == 3


def test_the_hint_of_an_error_is_its_fix() -> None:
    """The trainer's indented second line is the fix; any other line, or the log's end, leaves the rule's own."""
    said = "neoxlite: load: ckpt has no checkpoint"
    hint = "          Give the folder that holds latest."
    for text, fix in (
        (f"{said}\n{hint}\n", "Give the folder that holds latest."),
        (f"[rank1]: {said}\nother\n[rank1]: {hint}\n", "Give the folder that holds latest."),
        (f"{said}\nNot indented.\n", "Fix the file, key or value that the message names."),
        (said, "Fix the file, key or value that the message names."),
    ):
        (finding,) = read(text)
        assert isinstance(finding, Finding)
        assert (finding.say, finding.fix) == ("load: ckpt has no checkpoint", fix)


def test_the_copy_in_the_job_log_does_not_count_twice() -> None:
    """Rank 0's lines also stand in the job's own log: one error, not two."""
    report = FailureReport()
    feed(report, traceback("ValueError: a"), "12_job.out")
    feed(report, traceback("ValueError: a"), "12_0_log.out", rank=0)
    assert rows(report) == [("cause", "exception", "rank 0: ValueError: a")]


def test_nothing_found_in_an_ordinary_log() -> None:
    """Words such as 'error' in ordinary output are no findings."""
    report = FailureReport()
    feed(report, "validation error rate: 0.1\n0 errors\nusing error_file: none\n rank      : 3\nNCCL INFO x\n")
    assert rows(report) == []


def test_what_is_unfinished_is_of_its_file_alone() -> None:
    """A traceback that has begun in one rank's file does not make every line of the others worth reading."""
    report = FailureReport()
    assert not report.pending_in("a")
    feed(report, "Traceback (most recent call last):", "a")
    assert report.pending_in("a")
    assert not report.pending_in("b")
    feed(report, "ValueError: x", "a")
    assert not report.pending_in("a")


@pytest.mark.parametrize(("numbers", "text"), [({0, 1, 2, 5}, "0-2,5"), ({7}, "7"), (set(), ""), ({3, 1}, "1,3")])
def test_ranges(numbers: set[int], text: str) -> None:
    """Ranks are written shortly."""
    assert ranges(numbers) == text


def test_findings_are_sorted_into_roles() -> None:
    """Every role that a rule may have can be shown."""
    report = FailureReport()
    feed(report, "=>> PBS: job killed: walltime 3610 exceeded limit 3600\nsrun: Force Terminated job 1000\n")
    assert [row.role for row in report.rows()] == ["cause", "follower"]
    assert all(isinstance(row, Row) for row in report.rows())
    assert isinstance(read("=>> PBS: job killed: walltime 3610 exceeded limit 3600")[0], Finding)
