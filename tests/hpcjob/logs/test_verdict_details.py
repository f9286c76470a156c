"""Details of verdicts: where a loss stopped being a number, who is not in the log, who asked it to end, empty logs."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from hpcjob.cli import main
from hpcjob.logs.explain import gather, gather_stream, lines_of
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.explain.verdict import Verdict
from hpcjob.logs.sources import JobFiles

MEGATRON = (
    " iteration {0:8d}/    1000 | consumed samples: {0} | elapsed time per iteration (ms): 900.0"
    " | learning rate: 3.0E-04 | global batch size: 8 | lm loss: {1} | loss scale: 1.0 | grad norm: {2}"
    " | number of skipped iterations: 0 | number of nan iterations: 0 |\n"
)
WATCHDOG = (
    "[rank{0}]:[E1104 05:12:01.112 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=99, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds "
    "before timing out.\n"
)


def verdict_of(text: str) -> Verdict:
    return judge(gather_stream(io.BytesIO(text.encode()), "log"))


@pytest.mark.parametrize(
    ("loss", "norm"), [("NaN", "nan"), ("nan", "1.0"), ("3.2E+00", "nan"), ("inf", "1.0"), ("3.2E+00", "inf")]
)
def test_the_first_iteration_that_is_not_finite(loss: str, norm: str) -> None:
    """Of a few hundred such lines in one block the first is named, not the last."""
    text = "".join(MEGATRON.format(n, loss if n > 31 else "3.5E+00", norm if n > 31 else "1.0") for n in range(1, 300))
    found = verdict_of(text)
    assert found.code == 75
    assert found.cause == "loss or gradient is not finite from iteration 32 on"
    assert found.evidence[0].line == 32
    assert found.last_iteration == 299


TABLE = (
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-12-01_00:00:00\n  host      : localhost\n"
    "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n  error_file: <N/A>\n"
    "  traceback : Signal 9 (SIGKILL) received by PID 7\n============\n"
)


@pytest.mark.parametrize(
    ("before", "host"),
    [("", None), ("hpcjob: rank 1 on gpu07 ended with code 137\n", "gpu07"),
     ("hpcjob: rank 1 on localhost ended with code 137\n", None),
     ("localhost:7:9 [1] NCCL INFO ncclCommInitRank comm 0x1 rank 1 nranks 2 - Init START\n", None)],
)  # fmt: skip
def test_localhost_is_the_name_of_no_host(before: str, host: str | None) -> None:
    """Each machine calls itself so: where another line tells the name that is said, else none, nor is it left out."""
    found = verdict_of(before + TABLE)
    assert (found.code, found.rank, found.host, found.exclude) == (67, 1, host, [])
    who = "rank 1" if host is None else f"rank 1 on {host}"
    assert f"first      {who}, 2026-12-01_00:00:00" in [text for _, text in lines_of(found)]


def test_one_that_recovered_is_no_divergence() -> None:
    """A NaN that was followed by numbers again has not ended the run."""
    text = "".join(MEGATRON.format(n, "nan" if n == 5 else "3.5E+00", "1.0") for n in range(1, 30))
    assert verdict_of(text).code == 0


def test_logs_with_epochs_only() -> None:
    """The Hugging Face Trainer's dictionaries have no iteration; which number is not finite is said."""
    entry = "{{'loss': {}, 'grad_norm': {}, 'learning_rate': 5e-05, 'epoch': {}}}\n"
    found = verdict_of(entry.format(2.0, 1.0, 0.01) + entry.format(0.0, "nan", 0.02) + entry.format(0.0, "nan", 0.03))
    assert (found.code, found.cause) == (75, "loss or gradient is not finite from epoch 0.02 on")
    assert found.evidence[0].text == "epoch 0.02: loss 0.0, grad_norm nan"


def test_a_loss_that_is_no_number_comes_before_the_time_out_that_follows() -> None:
    """A rank leaves the training over it, and the others wait; numbers that came again, or NaN later, are not it."""
    rows = [MEGATRON.format(n, "nan" if n > 3 else "3.5E+00", "1.0") for n in range(1, 6)]
    late = "".join(WATCHDOG.format(rank) for rank in range(4))
    found = verdict_of("".join(rows) + late)
    assert (found.code, found.cause) == (75, "loss or gradient is not finite from iteration 4 on")
    assert found.followers == {"ALLREDUCE waited 600000 ms for a rank that did not come": 4}
    raised = found.evidence[0].text.replace("iteration 4", "torch.distributed.DistBackendError") + "\n"
    assert verdict_of("".join(rows) + f"[rank0]: {raised}" + late).code == 75
    assert verdict_of("".join(rows) + MEGATRON.format(6, "3.5E+00", "1.0") + late).code == 77
    assert verdict_of(rows[0] + late + rows[4]).code == 77
    over = "slurmstepd: error: *** JOB 7 ON node07 CANCELLED AT 2026-04-20T09:09:37 DUE TO TIME LIMIT ***\n"
    found = verdict_of("".join(rows) + over)
    assert (found.code, found.others) == (65, ["loss or gradient is not finite from iteration 4 on"])


def test_a_rank_that_is_not_in_the_log_at_all() -> None:
    """All others of a row of numbers waited: the gap is named. A quarter of the ranks is a part of the logs."""
    found = verdict_of("".join(WATCHDOG.format(rank) for rank in (0, 1, 2, 4, 5, 6, 7)))
    assert (found.code, found.rank) == (77, 3)
    assert found.cause == "rank 3 is not in the log; ranks 0-2,4-7 waited until the time-out"
    few = verdict_of("".join(WATCHDOG.format(rank) for rank in (0, 7)))
    assert "does not show the rank" in few.cause


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    train()\nKeyboardInterrupt\n',
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2041 got signal: 15\n",
    ],
)
def test_asked_to_end(text: str) -> None:
    """With nothing else in the log, Ctrl-C and SIGTERM are what ended it; an error before them counts more."""
    found = verdict_of("iter 10: loss 3.0, time 100.00ms, mfu 20.00%\n" + text)
    assert (found.code, found.followers) == (66, {})
    assert found.cause.startswith("it was asked to end")
    memory = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    assert verdict_of(memory + text).code == 68


def test_an_empty_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing is wrong in it, but it must not sound as if the run were well."""
    (tmp_path / "x.log").touch()
    assert main(["explain", str(tmp_path / "x.log")]) == 0
    assert "the log is empty" in capsys.readouterr().out


def test_a_short_compressed_log_that_was_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What was packed before the cut is read, though it is less than one buffer."""
    text = "".join(MEGATRON.format(n, f"{10 / n:.6E}", "1.0") for n in range(1, 61))
    packed = gzip.compress(text.encode())
    (tmp_path / "x.log.gz").write_bytes(packed[: len(packed) * 2 // 3])
    assert main(["tail", str(tmp_path / "x.log.gz"), "--loss", "-n", "all"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "/1000" in line]
    assert len(rows) > 20
    assert rows[19][:2] == ["20/1000", "0.500000"]


def test_grammar_of_one_voice() -> None:
    """One process says, two say."""
    closed = "[rank{}]: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.5]:23842\n"
    assert "1 process says so" in verdict_of(closed.format(0)).cause
    assert "2 processes say so" in verdict_of(closed.format(0) + closed.format(1)).cause


def test_ranks_that_began_nccl_and_did_not_finish() -> None:
    """One is called a rank, two are called ranks."""
    text = "node01:{0}:9 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {0} nranks 8 busId 1000 commId 0xab - {1}\n"
    for stuck, words in (((5,), "rank 5 of 8 began"), ((5, 6), "ranks 5-6 of 8 began")):
        begun = "".join(text.format(rank, "Init START") for rank in range(8))
        found = verdict_of(
            begun + "".join(text.format(rank, "Init COMPLETE") for rank in range(8) if rank not in stuck)
        )
        assert (found.code, found.cause[: len(words)]) == (70, words)


def test_a_kernel_log_of_a_japanese_locale() -> None:
    """The journal writes months in the language of who asked it; the host stands behind as always."""
    text = "11月 29 10:00:01 g0099 kernel: NVRM: Xid (PCI:0000:18:00): 95, pid=1234, Uncontained ECC error\n"
    found = verdict_of(text)
    assert (found.code, found.host, found.exclude) == (64, "g0099", ["g0099"])


SILENT = """hpcjob: 2026-01-01T10:00:00+00:00 job 2 on node1: 2 x 0 GPUs, 2 x 1 ranks, walltime 1:00:00; go (srun)
preparing
hpcjob: 2026-01-01T10:00:01+00:00 step "go" ended with code {}
"""
RAISED = 'Traceback (most recent call last):\n  File "/x/a.py", line 9, in <module>\n    x()\n{}\n'


@pytest.mark.parametrize(
    ("code", "own", "cause", "evidence"),
    [
        (1, None, "and said nothing that a rule knows; its last line: preparing", "2_job.out:2"),
        (137, None, ", that of signal 9 (SIGKILL), and said nothing that a rule knows; its last", "2_job.out:2"),
        (1, "a\n\nlast of 1\nhpcjob: rank 1 on node2 ended with code 1\n", "last line: last of 1", "2_1_log.out:3"),
    ],
)
def test_a_command_that_says_nothing_that_a_rule_knows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, code: int, own: str | None, cause: str, evidence: str
) -> None:
    """There is no error elsewhere that it could follow from: what the rank that ended first said last is quoted."""
    (tmp_path / "2_job.out").write_text(SILENT.format(code))
    if own is not None:
        (tmp_path / "2_0_log.out").write_text("preparing\n")
        (tmp_path / "2_1_log.out").write_text(own)
    assert main(["explain", str(tmp_path)]) == 79
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f'cause      not known: step "go" ended with code {code}')
    assert cause in lines[0]
    assert lines[1].startswith(f"evidence   {evidence}: ")
    assert not any(line.startswith("follower") for line in lines)


@pytest.mark.parametrize("own", ["", "hpcjob: rank 1 on node2 ended with code 1\n"])
@pytest.mark.parametrize("late", [True, False])
def test_two_ranks_fail(tmp_path: Path, *, own: str, late: bool) -> None:
    """The rank that srun or the job's script saw end first is to blame; the other's error stands in the job's log."""
    other = RAISED.format("TypeError: late one")
    (tmp_path / "2_job.out").write_text(
        "srun: error: node2: task 1: Exited with exit code 1\n"
        + (f"{other}srun: error: node1: task 0: Exited with exit code 1\n" if late else "")
    )
    (tmp_path / "2_0_log.out").write_text(other if late else "")
    (tmp_path / "2_1_log.out").write_text(RAISED.format("ValueError: early one") + own)
    found = judge(gather(JobFiles(tmp_path).all()))
    assert (found.cause, found.rank, found.code) == ("ValueError: early one", 1, 76)
    assert found.host == ("node2" if own else None)
    assert found.others == (["TypeError: late one"] if late else [])


def test_the_rank_of_an_error_that_the_log_of_the_job_repeats(tmp_path: Path) -> None:
    """Rank 0's lines stand there too, without their rank: its own file tells it, not a line of srun beside."""
    raised = RAISED.format("TypeError: x")
    (tmp_path / "2_job.out").write_text(f"srun: error: node2: tasks 1-2: Exited with exit code 1\n{raised}")
    (tmp_path / "2_0_log.out").write_text(raised)
    found = judge(gather(JobFiles(tmp_path).all()))
    assert (found.rank, found.host) == (0, None)


def test_a_data_file_that_was_cut_goes_before_the_signal_that_it_made() -> None:
    """torchrun knows the signal only, whose usual cause is another; the stack of Python tells who read."""
    report = "Root Cause (first observed failure):\n[0]:\n  time      : 2026-12-01_00:00:00\n  host      : node1\n"
    report += "  rank      : 0 (local_rank: 0)\n  exitcode  : -7 (pid: 99)\n  error_file: <N/A>\n"
    report += "  traceback : Signal 7 (SIGBUS) received by PID 99\n"
    stack = '  File "/opt/neoxlite/data/gpt_dataset.py", line 63 in sample\n'
    start = "Fatal Python error: Bus error\n\nThread 0x00007f12 (most recent call first):\n"
    found = verdict_of(start + stack + report)
    assert (found.code, found.cause.partition(" while")[0]) == (69, "a mapped data file was cut")
    assert verdict_of(start + report).code == 67
