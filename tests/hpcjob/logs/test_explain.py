"""``hpcjob explain``: one cause out of many errors, from any source, and the exit code that says its class."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcjob.cli import main
from hpcjob.errors import InputError
from hpcjob.logs.explain import gather, gather_stream
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.explain.verdict import Verdict
from hpcjob.logs.rulebook import load_errors
from hpcjob.logs.sources import JobFiles, Kind, Source
from hpcjob.logs.topics import MEANINGS, TOPICS
from hpcjob.tracking.index import append
from hpcjob.tracking.records import Record

from .conftest import GOLDEN

CASES: list[dict[str, Any]] = yaml.safe_load((GOLDEN.parent / "causes.yml").read_text())


def verdict_of(text: str | bytes) -> Verdict:
    data = text.encode() if isinstance(text, str) else text
    return judge(gather_stream(io.BytesIO(data), "log"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_causes(case: dict[str, Any]) -> None:
    """Each documented kind of fault gives its class, and where the log tells them rank, host and words."""
    verdict = verdict_of(case["log"])
    assert verdict.code == case["code"], verdict
    for field in ("rank", "host", "exclude"):
        if field in case:
            assert getattr(verdict, field) == case[field], verdict
    assert case.get("cause", "") in verdict.cause
    assert case.get("fix", "") in (verdict.fix or "")
    if verdict.code:
        assert verdict.fix, verdict


def test_codes_are_documented() -> None:
    """Each topic has a code in the range of findings, each code a meaning, and the help text lists all."""
    assert {topic.code for topic in TOPICS.values()} | {0, 78, 79} == MEANINGS.keys()
    assert all(64 <= code <= 79 for code in MEANINGS if code)
    assert {rule.topic for rule in load_errors().rules if rule.role in ("cause", "symptom")} <= TOPICS.keys()


def test_the_documentation_lists_the_codes() -> None:
    """docs/logs.md and the code agree."""
    text = (Path(__file__).parents[3] / "docs" / "logs.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", text, re.MULTILINE))
    assert rows == {str(code): meaning for code, meaning in MEANINGS.items()}


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str]]:
    code = main(["explain", *map(str, arguments)])
    return code, capsys.readouterr().out.splitlines()


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_what_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Cause, who, evidence with file and line, fix, cost, followers, and the exit code with its meaning."""
    log = tmp_path / "12_job.out"
    log.write_text(
        "node01:1:1 [0] NCCL INFO comm 0x7f rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE\n"
        "node02:2:2 [0] NCCL INFO comm 0x7e rank 1 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE\n"
        "  successfully saved checkpoint at iteration     100 to ckpt\n"
        " iteration      160/  320000 | elapsed time per iteration (ms): 60000.0 | lm loss: 7.123456E+00 |\n"
        "[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n"
        f"[rank1]: Traceback (most recent call last):\n[rank1]:   File 'x'\n[rank1]: {OOM}\n"
    )
    code, lines = run(capsys, log)
    assert code == 68
    assert lines == [
        "cause      GPU memory is exhausted (tried to allocate 2.00 GiB)",
        "first      rank 1 on node02",
        f"evidence   12_job.out:8: {OOM}",
        "fix        Lower the micro-batch, use activation checkpointing, a higher ZeRO stage or more tensor "
        "parallelism; if much is reserved but unallocated, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        "cost       2 GPU-hours since the checkpoint of iteration 100 (iteration 160)",
        "follower   another process ended, or the network failed",
        "exit code  68: GPU memory",
    ]


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One object with the same facts, for scripts."""
    (tmp_path / "x.log").write_text("node07: NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n")
    code, lines = run(capsys, tmp_path / "x.log", "--json")
    (text,) = lines
    data = json.loads(text)
    assert code == data["code"] == 64
    assert (data["event"], data["host"], data["exclude"]) == ("verdict", "node07", ["node07"])
    assert data["evidence"][0]["line"] == 1


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_compressed_sources(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    """Old logs are read as they lie, whatever compressed them; line numbers are those of the text."""
    data = f"hello\n{OOM}\n".encode()
    path = tmp_path / f"x.log{suffix}"
    if suffix == ".zst":
        zstd = pytest.importorskip("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
        path.write_bytes(zstd.compress(data))
    else:
        pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
        path.write_bytes(pack(data))
    code, lines = run(capsys, path)
    assert code == 68
    assert f"evidence   {path.name}:2: {OOM}" in lines


def test_damaged_compression_gives_what_is_readable(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A .gz that was cut while it was copied still tells what came before the cut."""
    data = gzip.compress((OOM + "\n" + "".join(f"line {number}\n" for number in range(100_000))).encode())
    (tmp_path / "x.log.gz").write_bytes(data[: len(data) // 2])
    assert run(capsys, tmp_path / "x.log.gz")[0] == 68


def test_a_file_that_is_gone_when_its_turn_comes(tmp_path: Path) -> None:
    """Files of a job that runs come and go: which one is told, without a traceback."""
    with pytest.raises(InputError, match=r"gone\.out: cannot be read"):
        gather([Source(tmp_path / "gone.out", Kind.RANK, 1)])


def test_globs_and_directories(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A quoted pattern, several files, a directory, and a directory within them are all the job's log."""
    (tmp_path / "損失").mkdir()
    (tmp_path / "a.log").write_text("hello\n")
    (tmp_path / "損失" / "b.log").write_text(OOM + "\n")
    for words in ([tmp_path / "*" / "*.log"], [tmp_path / "a.log", tmp_path / "損失"], [tmp_path / "損失"]):
        assert run(capsys, *words)[0] == 68
    assert main(["explain", str(tmp_path / "*.gone")]) == 2
    assert "no file of that pattern" in capsys.readouterr().err


def test_folders_of_torchrun(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """torchrun --log-dir nests a folder a process; a rank in a file's name is its rank."""
    for rank in range(2):
        folder = tmp_path / "run" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text("hello\n" if rank else OOM + "\n")
    assert run(capsys, tmp_path)[0] == 68
    (tmp_path / "node07_rank_05.log.gz").write_bytes(gzip.compress(OOM.encode()))
    code, lines = run(capsys, tmp_path)
    assert code == 68
    assert "first      rank 5" in lines


def test_host_in_a_file_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A kernel log that is named after a host of the job is that host's."""
    (tmp_path / "a.log").write_text("gpu-7:1:2 [0] NCCL INFO Using network IB\n")
    (tmp_path / "dmesg.gpu-7.log").write_text("NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n")
    code, lines = run(capsys, tmp_path)
    assert code == 64
    assert "exclude    gpu-7" in lines


def test_standard_input() -> None:
    """A pipe is read to its end; the class is the exit code."""
    command = [sys.executable, "-c", "import sys; from hpcjob.cli import main; sys.exit(main(['explain', '-']))"]
    done = subprocess.run(command, input=f"{OOM}\n".encode(), capture_output=True, check=False)
    assert done.returncode == 68
    assert done.stderr == b""


def test_nothing_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A log without errors is 0, one that does not exist yet says so."""
    (tmp_path / "x.log").write_text("all is well\n")
    assert run(capsys, tmp_path / "x.log")[0] == 0
    (tmp_path / "empty").mkdir()
    assert main(["explain", str(tmp_path / "empty")]) == 0
    assert "no log yet" in capsys.readouterr().err


def test_own_rules(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of the user's, by --rules or from log_rules/ here, is tried first and may replace a shipped one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.log").write_text("FLUX CAPACITOR 7 is empty\n")
    own = tmp_path / "own.yml"
    own.write_text(
        "- id: flux\n  topic: hardware\n  role: cause\n  literal: FLUX CAPACITOR\n"
        "  pattern: 'FLUX CAPACITOR (?P<n>\\d+) is empty'\n  say: capacitor {n} is empty\n  fix: Fill it.\n"
        "  source: our wiki\n  match: ['FLUX CAPACITOR 7 is empty']\n"
    )
    assert run(capsys, "x.log")[0] == 0
    code, lines = run(capsys, "x.log", "--rules", own)
    assert (code, lines[0]) == (64, "cause      capacitor 7 is empty")
    (tmp_path / "log_rules").mkdir()
    own.rename(tmp_path / "log_rules" / "own.yml")
    assert run(capsys, "x.log")[0] == 64
    for options in ([], ["--errors"]):
        assert main(["tail", "x.log", *options]) == 0
        assert any("capacitor 7 is empty" in row for row in capsys.readouterr().out.splitlines())


def test_profile_is_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Sockets where the profile has InfiniBand, fewer HCAs and another NCCL than declared are said."""
    (tmp_path / "profile.yml").write_text(
        "name: big\ntitle: Big\nscheduler: {type: slurm}\nnode: {gpus: 8, hcas: 4}\n"
        "versions: {nccl: 2.19.3, cuda: '11.8'}\n"
    )
    (tmp_path / "hostfile").write_text("node01 slots=8\nnode02 slots=8\n")
    start = "node0{}:1:1 [0] NCCL INFO "
    texts = [
        "NCCL version 2.21.5+cuda12.4",
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.1<0>",
        "Using network Socket",
        "comm 0x7f rank 0 nranks 8 cudaDev 0 busId 1000 - Init COMPLETE",
    ]
    lines = [f"{start.format(node)}{text}\n" for node in (1, 2) for text in texts]
    (tmp_path / "12_job.out").write_text("".join(lines))
    code, shown = run(capsys, tmp_path)
    assert code == 78
    text = "\n".join(shown)
    assert "big has InfiniBand or RoCE, and TCP sockets are used on node01, node02" in text
    assert "big has 4 HCAs a node, NCCL uses 2 on node01, node02" in text
    assert "big declares CUDA 11.8, NCCL was built for 12.4" in text
    assert "the job was given 16 ranks, NCCL's largest communicator has 8" in text
    assert "big declares NCCL 2.19.3, the log has 2.21.5+cuda12.4" in text


@pytest.mark.parametrize(
    "text",
    [
        f"node01:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM[rank3]: {OOM}\n",
        f"node01:1:2 [0] NCCL INFO Channel 00node02:5:6 [1] NCCL INFO Using network IB[rank3]: {OOM}\n",
        f" 50%|#####     | 5/10 [00:01<00:01]\r[rank3]: {OOM}\r 60%|######    | 6/10\n",
        f"\x1b[31m[rank3]:\x1b[0m {OOM}\n",
        f"2026-01-01T10:00:00Z node07: [1,3]<stderr>:{OOM}\n",
        f"3: {OOM}\n",
        f"node07: [rank3]: {OOM}\n",
    ],
)
def test_glued_lines_and_prefixes(text: str) -> None:
    """What other processes wrote into the same line hides neither the error nor its rank."""
    verdict = verdict_of(text)
    assert (verdict.code, verdict.rank) == (68, 3)


def test_any_bytes_and_endless_lines() -> None:
    """Binary rubbish, NULs, cut characters and a line of 40 MB end in a verdict, and what is known in them is found."""
    rubbish = bytes(range(256)) * 1000 + b"\xff\xfe\0\n" + b"x" * 40_000_000 + b"\n"
    assert verdict_of(rubbish).code == 0
    assert verdict_of(rubbish + OOM.encode()).code == 68


def test_a_failed_job_without_a_known_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit record says that it failed, no line says why: it is said so, with the rank that differs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "実験"
    folder.mkdir()
    (folder / "12_exit.json").write_text(
        json.dumps({"code": 1, "signal": None, "time": "2026-01-01T00:00:00+00:00", "host": "node01", "step": "train"})
    )
    for rank in range(4):
        reached = 40 if rank == 2 else 90
        (folder / f"12_{rank}_log.out").write_text(
            "".join(f"step: {number} loss: 2.5\n" for number in range(10, reached + 1, 10))
        )
    append(
        Record(
            profile="local",
            scheduler="local",
            server=socket.gethostname(),
            id="12",
            submitted="2026-01-01T00:00:00+00:00",
            name="実験",
            directory=str(folder),
        )
    )
    code, lines = run(capsys, "実験")
    assert code == 79
    assert lines[0] == "cause      not known: the job ended with exit code 1, and no line of its log shows why"
    assert lines[1] == "odd one    rank 2 stopped at iteration 40, others reached 90"


def test_the_silent_rank_is_the_odd_one() -> None:
    """Where ranks only complain of others, the one that wrote nothing is named."""
    remote = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
    starts = [
        f"node01:{rank}:{rank} [0] NCCL INFO comm 0x{rank}f rank {rank} nranks 4 cudaDev 0 busId 1000 - Init COMPLETE\n"
        for rank in range(4)
    ]
    verdict = verdict_of("".join(starts) + "".join(f"[rank{rank}]: {remote}\n" for rank in (0, 1, 3)))
    assert verdict.code == 79
    assert verdict.followers == {"another process ended, or the network failed": 3}


def test_the_clock_orders_causes_of_several_files(tmp_path: Path) -> None:
    """Of two exceptions the earlier one is the cause, whatever the order in which the files are read."""
    for rank, time in ((0, "10:00:09"), (1, "10:00:01")):
        (tmp_path / f"12_{rank}_log.out").write_text(
            f"[2026-01-01 {time},000] [INFO] saved checkpoint of iteration 5 to x\nTraceback (most recent call last):\n"
            f'  File "t.py", line {rank + 1}, in f\nValueError: of rank {"ab"[rank]}\n'
        )
    verdict = judge(gather(JobFiles(tmp_path).all()))
    assert (verdict.rank, verdict.cause) == (1, "ValueError: of rank b")
    assert verdict.others == ["ValueError: of rank a"]


def test_the_first_of_many_that_say_the_same(tmp_path: Path) -> None:
    """When every rank has the same error, the one whose clock is earliest failed first; torchrun's word goes before."""
    for rank in range(4):
        (tmp_path / f"12_{rank}_log.out").write_text(
            f"[2026-01-01 10:00:0{9 if rank != 2 else 1},000] [INFO] saved checkpoint of iteration 5 to x\n"
            'Traceback (most recent call last):\n  File "t.py", line 1, in f\nValueError: all alike\n'
        )
    files = JobFiles(tmp_path).all
    verdict = judge(gather(files()))
    assert (verdict.rank, verdict.ranks) == (2, [0, 1, 2, 3])
    assert verdict.evidence[0].source.endswith("12_2_log.out")
    (tmp_path / "12_job.out").write_text(
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_10:00:00\n  host      : node07\n"
        "  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 9)\n  error_file: <N/A>\n  traceback : none\n"
    )
    verdict = judge(gather(files()))
    assert (verdict.rank, verdict.host) == (3, "node07")


def test_a_flood_is_one_cause() -> None:
    """Hundreds of assertions of one kernel, and the exception of every rank, are one cause with its count."""
    flood = "".join(
        f"../aten/src/ATen/native/cuda/Indexing.cu:1: indexSelectLargeIndex: block: [{block},0,0], thread: "
        f"[{thread},0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
        for block in range(50)
        for thread in range(32)
    )
    verdict = verdict_of(flood + "[rank2]: RuntimeError: CUDA error: device-side assert triggered\n")
    assert (verdict.code, verdict.others) == (74, [])
    assert len(verdict.evidence) == 1


def test_a_found_rule_file_with_a_fault_stops_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be an old one at home, or a colleague's: file, line and fault are told, the other rules go on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.log").write_text("LM_LICENSE: no answer\nKeyError: 'x'\n")
    folder = tmp_path / "log_rules"
    folder.mkdir()
    sound = "- {id: lic, topic: launch, role: cause, literal: LM_, say: no licence, source: wiki, match: [LM_]}\n"
    (folder / "a.yml").write_text(f"{sound}- id: ours\n  role: panic\n")
    (folder / "b.yml").write_text(sound)
    for command in (["tail", "--errors"], ["tail"], ["explain"]):
        load_errors.cache_clear()  # each command is a process of its own
        assert main([*command, "x.log"]) == (0 if command[0] == "tail" else 71)
        shown = capsys.readouterr()
        assert "no licence" in shown.out
        warning = shown.err.splitlines()[0]
        assert warning.startswith(f"hpcjob: warning: {folder / 'a.yml'}:3: role:"), warning
        assert "the rules of this file are skipped" in shown.err.splitlines()[1]
    (folder / "b.yml").write_text("- [\n")
    os.mkfifo(folder / "c.yml")
    load_errors.cache_clear()
    assert main(["tail", "x.log"]) == 0
    told = capsys.readouterr().err
    assert f"warning: {folder / 'b.yml'}:2: " in told
    assert f"warning: {folder / 'c.yml'}: no regular file" in told
    assert main(["explain", "x.log", "--rules", str(folder / "b.yml")]) == 2
