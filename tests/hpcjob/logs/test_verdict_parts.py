"""Parts of a verdict: hosts to leave out, what the end cost, who differs, the profile, rules of the user's own."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcjob.cli import main
from hpcjob.logs.explain import gather_stream
from hpcjob.logs.explain.exclusion import compressed, ways_to_exclude
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.explain.verdict import Verdict
from hpcjob.logs.explain.words import lines_of

ROOT = Path(__file__).parents[3]
XID = "node07: NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n"


def verdict_of(text: str) -> Verdict:
    return judge(gather_stream(io.BytesIO(text.encode()), "log"))


def explain(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    code = main(["explain", *map(str, words), "--json"])
    verdict: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert verdict["code"] == code
    return verdict


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        (["node07"], "node07"),
        (["node01", "node02", "node03", "node07"], "node[01-03,07]"),
        (["a1", "a01", "login"], "a01,a1,login"),
        (["gpu9", "gpu10"], "gpu9,gpu10"),
    ],
)
def test_hosts_as_slurm_writes_them(hosts: list[str], words: str) -> None:
    """By sbatch(1): a width of its own for each group of numbers."""
    assert set(re.findall(r"[a-z]+(?:\[[^]]*\]|\d*)", compressed(hosts))) == set(
        re.findall(r"[a-z]+(?:\[[^]]*\]|\d*)", words)
    )


def test_words_for_each_scheduler() -> None:
    """The line of a job file is one that the job file takes; where a scheduler has no such option it is said."""
    hosts = ["node01", "node02"]
    assert ways_to_exclude(hosts, "slurm") == {
        "job file": "exclude: [node01, node02]",
        "sbatch": "--exclude=node[01-02]",
    }
    grid = ways_to_exclude(hosts, "gridengine")
    assert grid["qsub"] == "-l h='!(node01|node02)'"
    assert yaml.safe_load(grid["job file"]) == {"extra": ["-l h=!(node01|node02)"]}
    assert "no option" in ways_to_exclude(hosts, "pbs")["operations"]
    assert ways_to_exclude(hosts, "local") == {}
    assert ways_to_exclude(["a;rm -rf", "$(x)"], "slurm") == {}


def test_the_profile_tells_the_scheduler(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Only the words of the job's own scheduler are shown."""
    (tmp_path / "profile.yml").write_text("name: big\ntitle: Big\nscheduler: {type: slurm}\n")
    (tmp_path / "12_job.out").write_text(XID)
    assert explain(capsys, tmp_path)["exclude_with"] == {"job file": "exclude: [node07]", "sbatch": "--exclude=node07"}
    assert main(["explain", str(tmp_path)]) == 64
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("exclude    node07") + 1] == "           job file: exclude: [node07]"


START = "node01:1:1 [0] NCCL INFO comm 0x7f rank 0 nranks 4 cudaDev 0 busId 1000 - Init COMPLETE\n"


def test_cost_counts_the_time_that_it_hung() -> None:
    """By the log's clock: saved at 10:00, ended at 12:30, four GPUs: ten GPU-hours, though iterations took one."""
    log = (
        "[2026-01-01 10:00:00,000] [INFO] saved checkpoint of iteration 100 to x\n"
        "[2026-01-01 10:15:00,000]  iteration 115/ 320000 | elapsed time per iteration (ms): 60000.0 | lm loss: 2.5 |\n"
        "[2026-01-01 12:30:00,000] [rank0]: ValueError: bad\n"
    )
    verdict = verdict_of(START + log)
    assert verdict.cost_gpu_hours == pytest.approx(10, abs=0.01)


def test_a_cost_of_nothing_is_not_told() -> None:
    """20 iterations of 7 ms on two processes: seconds, which "0 GPU-hours" would not tell either."""
    iteration = " iteration       20/     100 | elapsed time per iteration (ms): 7.2 | lm_loss: 6.0E+00 |\n"
    verdict = verdict_of(START.replace("nranks 4", "nranks 2") + iteration + "[rank1]: ValueError: bad\n")
    assert verdict.cost_gpu_hours == 0
    assert not [text for _, text in lines_of(verdict) if text.startswith("cost")]


def test_cost_without_a_clock_adds_the_watchdogs_wait() -> None:
    """15 iterations of a minute and half an hour of waiting, on four GPUs: three GPU-hours."""
    log = (
        "saved checkpoint of iteration 100 to x\n"
        " iteration 115/ 320000 | elapsed time per iteration (ms): 60000.0 | lm loss: 2.5 |\n"
        "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7,"
        " OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800000 milliseconds before timing out."
    )
    verdict = verdict_of(START + log)
    assert verdict.cost_gpu_hours == pytest.approx(3, abs=0.01)


def test_unknown_cause_shows_the_line_that_one_rank_alone_wrote(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """No rule knows it; of eight ranks one says something else than all others near its end."""
    for rank in range(8):
        text = "".join(f"rank {rank} batch {number} took {number % 7} ms\n" for number in range(50))
        odd = "quota manager: allowance exhausted\n" if rank == 5 else ""
        (tmp_path / f"12_{rank}_log.out").write_text(text + odd)
    record = {"code": 1, "signal": None, "time": "2026-01-01T00:00:00+00:00", "host": "node01", "step": "train"}
    (tmp_path / "12_exit.json").write_text(json.dumps(record))
    verdict = explain(capsys, tmp_path)
    assert verdict["code"] == 79
    assert verdict["cause"].startswith("not known: ")
    assert "rank 5 alone says: quota manager: allowance exhausted" in verdict["odd"]


def test_interface_and_adapters_of_the_profile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """NCCL starts over another interface than the profile names, and uses an adapter too many."""
    (tmp_path / "profile.yml").write_text(
        "name: big\ntitle: Big\nscheduler: {type: pbs}\nnode: {gpus: 8, hcas: 1}\nnetwork_interface: bond0\n"
    )
    start = "node01:1:1 [0] NCCL INFO "
    (tmp_path / "12_job.out").write_text(
        f"{start}Bootstrap : Using eno1:10.0.0.1<0>\n{start}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_8:1/IB [RO]; OOB x\n"
    )
    verdict = explain(capsys, tmp_path)
    assert verdict["code"] == 78
    assert verdict["fix"]
    assert "big has bond0 between nodes, NCCL starts over eno1 on node01" in verdict["warnings"]
    assert any("big has 1 HCAs for computation, NCCL uses 2" in text for text in verdict["warnings"])


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/logs.md"])
def test_a_rule_as_the_pages_show_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """The rule that a page shows, put where the page says, is tried: its example has its words and class."""
    text = (ROOT / page).read_text()
    (block,) = (found for found in re.findall(r"```yaml\n(- id: .*?)```", text, re.DOTALL))
    (rule,) = yaml.safe_load(block)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log_rules").mkdir()
    (tmp_path / "log_rules" / "own.yml").write_text(block)
    (tmp_path / "x.log").write_text("".join(f"[rank3]: {line}\n" for line in rule["match"]))
    verdict = explain(capsys, "x.log")
    assert (verdict["rule"], verdict["fix"], verdict["rank"]) == (rule["id"], rule["fix"], 3)
    (tmp_path / "x.log").write_text("".join(f"{line}\n" for line in rule["reject"]))
    assert explain(capsys, "x.log").get("rule") != rule["id"]


def test_numbers_of_several_process_groups_are_not_compared() -> None:
    """Ranks wait in groups that count for themselves: 7 in one and 900 in another are not far apart."""

    def waits(rank: int, group: str, number: int) -> str:
        return (
            f"[rank{rank}]:[E1 ProcessGroupNCCL.cpp:616] [PG ID {group} Rank {rank}] Watchdog caught collective"
            f" operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
            "Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
        )

    world = "".join(waits(rank, "0 PG GUID 0(default_pg)", 899 if rank == 2 else 900) for rank in range(1, 6))
    verdict = verdict_of(waits(0, "1 PG GUID 3(tp)", 7) + world)
    assert (verdict.code, verdict.rank) == (77, 2)
    assert "stands at collective 899, the others at 900" in verdict.cause


def test_a_job_that_ended_well_has_no_cause(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 0: an exception that was caught and printed is no cause; what is slow still is said."""
    record = {"code": 0, "signal": None, "time": "2026-01-01T00:00:00+00:00", "host": "node01", "step": "train"}
    (tmp_path / "12_exit.json").write_text(json.dumps(record))
    (tmp_path / "12_job.out").write_text("Traceback (most recent call last):\n  File 'x'\nValueError: caught\n")
    verdict = explain(capsys, tmp_path)
    assert (verdict["code"], verdict["cause"]) == (0, "the job ended with exit code 0")
    assert verdict["others"] == ["in passing: ValueError: caught"]
    (tmp_path / "12_job.out").write_text("node01:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n")
    verdict = explain(capsys, tmp_path)
    assert verdict["code"] == 78
    assert verdict["fix"]
