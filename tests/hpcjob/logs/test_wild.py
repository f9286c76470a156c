"""Shapes of logs from public threads, written anew: the cause is the true one, nobody is blamed without reason."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcjob.cli import main
from hpcjob.logs.events import Iteration, Validation
from hpcjob.logs.explain import gather_stream
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.lines import LineParser
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.nccl_line import fold_nccl
from hpcjob.logs.parse import parse
from hpcjob.logs.training import TrainingReader

from .conftest import line

WILD: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "wild.yml").read_text(encoding="utf-8"))
TOLD = ("rank", "host", "exclude", "others")


@pytest.mark.parametrize("case", WILD, ids=[case["name"] for case in WILD])
def test_wild(case: dict[str, Any]) -> None:
    found = judge(gather_stream(io.BytesIO(case["log"].encode()), "log"))
    assert found.code == case["code"], found
    assert case["cause"] in found.cause
    assert {name: getattr(found, name) for name in TOLD if name in case} == {
        name: case[name] for name in TOLD if name in case
    }
    if found.code not in (0, 78):
        assert found.fix


def events_of(text: str) -> list[tuple[Any, ...]]:
    """Return step, number of steps and loss of the lines of a file."""
    reader, parser, offset = TrainingReader(), LineParser("log"), 0
    found: list[tuple[Any, ...]] = []
    for row in text.splitlines(keepends=True):
        for event in reader.read(parser.parse(offset, row.rstrip("\n").encode())):
            if isinstance(event, Iteration):
                found.append((event.iteration, event.train_iters, event.loss))
            elif isinstance(event, Validation):
                found.append(("held out", event.iteration, event.loss))
        offset += len(row.encode())
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "2024-08-06 09:59:26.181 node01:0  olmo.train:908  INFO    [step=1/7000,epoch=0]\n"
            "    optim/total_grad_norm=231.7\n    train/CrossEntropyLoss=12.18\n    train/Perplexity=195,153\n"
            "2024-08-06 10:00:05.520 node01:0  olmo.train:908  INFO    [step=2/7000,epoch=0]\n"
            "    train/CrossEntropyLoss=11.5\n    System/Peak GPU Memory (MB)=53,695\n",
            [(1, 7000, 12.18), (2, 7000, 11.5)],
        ),
        (
            "[batch=1/100]:\n\t Train time/batch: 0\n\t Train loss/train/total: 11.6525\n"
            "\t Train metrics/train/LanguageCrossEntropy: 11.6525\n[batch=2/100]:\n\t Train loss/train/total: 11.6012\n"
            "\t Eval metrics/eval/LanguageCrossEntropy: 11.5\n",
            [(1, 100, 11.6525), (2, 100, 11.6012), ("held out", 2, 11.5)],
        ),
        (
            "".join(
                f"Training epoch 0, iteration {step}/149 | lr: 3e-05 | global_step: {step} | reduced_train_loss: 1.2 "
                f"| train_step_timing in s: 0.03 | val_loss: {held_out}\n"
                for step, held_out in ((120, 4.1), (121, 4.1), (122, 4.0))
            ),
            [
                *[(120, 149, 1.2), ("held out", 120, 4.1), (121, 149, 1.2)],
                *[(122, 149, 1.2), ("held out", 122, 4.0)],
            ],
        ),
        ("\t Train loss/train/total: 11.6\n[step=3]\n", []),
        (
            "2022-01-05 21:36:32,809 [INFO] step 190, Loss 0.6758, Loss Test 0.3793, LR 0.2000\n",
            [(190, None, 0.6758), ("held out", 190, 0.3793)],
        ),
    ],
)
def test_numbers_over_several_lines(text: str, expected: list[tuple[Any, ...]]) -> None:
    """A block's heading has the step; a loss on held-out data that is only shown again is none."""
    assert events_of(text) == expected


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("Iteration:  23%|##   | 650/2771 [01:23<04:25,  8.00it/s]DLL - Training Iteration: 651  step_loss : 2.05 ",
         {"iteration": 651, "loss": 2.05, "iteration_time_ms": 125.0}),
        ("Epoch: [1][415/1000]\t Loss 0.5844 MAE 0.6568", {"iteration": 1415, "train_iters": 2000, "loss": 0.5844}),
        ("| epoch 002  500 / 1000 loss=1.27 (1.50), wps=962, lr=0.001", {"iteration": 1500, "train_iters": 2000}),
        ("Epoch 1:  50%|##  | 50/100 [00:05<00:05, 9.91it/s, v_num=0, train_loss=2.30]",
         {"iteration": 150, "train_iters": 200, "loss": 2.3}),
        ("32/1875 [..............] - ETA: 3s - loss: 2.30", {"iteration": 32, "train_iters": 1875, "loss": 2.3}),
        ("completed step: 9, seconds: 5.667, TFLOP/s/device: 134.924, Tokens/s/device: 8672.758, loss: 10.374",
         {"iteration": 9, "iteration_time_ms": 5667.0, "tflops": 134.924, "tokens_per_s": 8672.758}),
        ("[INFO|DP=0]: iteration: 3 / 9 | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | lm_loss: 2.38 "
         "| model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 40.1",
         {"iteration": 3, "iteration_time_ms": 11500.0, "tokens_per_s": 22800.0, "tflops": 38.3}),
        ("iter 0: loss 4.2627, time 3286.79ms, mfu -100.00%", {"mfu_percent": None, "iteration_time_ms": 3286.79}),
        ("   40 | loss 6.6875 | lr 3.00e-04 | 13808.97ms",
         {"iteration": 40, "lr": 3e-4, "iteration_time_ms": 13808.97}),
        ("Train: 1 [  50/2502 (  2%)]  Loss:  6.58 (6.60)  Time: 0.680s, 1505.88/s  (0.740s, 1383.78/s)  LR: 4.000e-05",
         {"iteration": 2552, "train_iters": 5004, "loss": 6.58, "lr": 4e-5, "iteration_time_ms": 680.0}),
        ("steps:   1% 2/200 [00:22<36:48, 11.16s/it, loss=0.406]epoch 2/100", {"iteration": 2, "train_iters": 200}),
        ("{'loss': 1.45, 'train_speed(iter/s)': 0.08, 'epoch': 0.0, 'global_step/max_steps': '1/1200'}",
         {"iteration": 1, "train_iters": 1200, "iteration_time_ms": 12500.0}),
        ("Epoch 3:  45%|## | 450/1000 [05:10<06:19, 1.45it/s, train_loss_step=2.10, train_loss_epoch=2.30]",
         {"iteration": 3450, "loss": 2.1}),
        ("Epoch 3/9  ━━━━━━━ 460/1000 0:05:20 • 0:06:13 1.25it/s v_num: 3.000 train_loss: 2.090",
         {"iteration": 3460, "train_iters": 4000, "loss": 2.09, "iteration_time_ms": 800.0}),
        (" iteration      100/  115311 | elapsed time per iteration (s): 105.31 | lm loss: 9.2E+00 | TFLOPs: 149.33 |",
         {"iteration": 100, "iteration_time_ms": 105310.0, "tflops": 149.33}),
        ("INFO:tensorflow:global step 1: loss = 79.3501 (57.126 sec/step)", {"iteration_time_ms": 57126.0}),
    ],
)  # fmt: skip
def test_numbers_of_trainers(text: str, tells: dict[str, Any]) -> None:
    """Per cent are no steps, and steps within an epoch are counted from the start of the training."""
    (event,) = [event for event in parse(line(text)) if isinstance(event, Iteration)]
    assert {name: getattr(event, name) for name in tells} == pytest.approx(tells)


def test_copies_without_prefixes_are_one_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Where all ranks write into one file and nothing names them, the rows that follow one another are alike."""
    log = tmp_path / "x.log"
    row = "[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  {}  loss:  {}  tps: 10,050  tflops: 314.{}\n"
    log.write_text("".join(row.format(step, 8 - step, rank) for step in (4, 5, 6) for rank in range(8)))
    main(["tail", "--loss", "-n", "2", str(log)])
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [text.split()[:2] for text in rows] == [["5", "3.000000"], ["6", "2.000000"]]


def test_one_node_has_no_network() -> None:
    """What is between nodes is said of those jobs only that have several."""
    report = NcclReport()
    said = [
        "NCCL INFO NET/IB : No device found.",
        "NCCL INFO Using network Socket",
        "NCCL INFO NCCL_IB_DISABLE set by environment to 1.",
        "NCCL INFO GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 7 > 4)",
        "NCCL INFO comm 0x3f rank {rank} nRanks 2 nNodes {nodes} localRanks 2 localRank 0 MNNVL 0",
        "NCCL INFO ncclCommInitRank comm 0x3f rank {rank} nranks 2 cudaDev 0 busId 1 commId 0xab - Init COMPLETE",
    ]
    for rank in (0, 1):
        for text in said:
            report.read(line(f"node01:10{rank}:200 [{rank}] {text.format(rank=rank, nodes=1)}"))
    assert report.one_node
    assert report.warnings == []
    assert fold_nccl(report).text == "NCCL, 2 ranks, one node: ok"
    report.read(line(f"node01:100:200 [0] {said[4].format(rank=0, nodes=2)}"))
    assert {group.first.rule for group in report.warnings} == {"nccl-no-ib", "nccl-workaround", "nccl-gdr-off"}


def test_a_version_without_a_host(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Up to 2.26 the first rank alone tells the version, with no prefix: it counts, and is no line of its own."""
    log = tmp_path / "x.log"
    log.write_text(
        "node01:1:2 [0] NCCL INFO Bootstrap : Using [0]ib0:10.0.0.1<0>\n"
        "NCCL version 2.21.5+cuda12.4\n"
        "node01:1:2 [0] NCCL INFO Using network IB\n"
        "node01:1:2 [0] NCCL INFO comm 0x7f rank 0 nranks 1 cudaDev 0 busId 1000 - Init COMPLETE\n"
    )
    main(["tail", str(log)])
    assert capsys.readouterr().out == "NCCL 2.21.5, 1 rank, one node: ok\n"
    main(["tail", "--nccl", str(log)])
    out = capsys.readouterr().out
    assert "NCCL 2.21.5+cuda12.4 (reported by the first rank)" in out
    assert " ib0\n" in out
