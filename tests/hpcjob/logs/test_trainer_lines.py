"""Lines of many trainers: the row that each makes, or that it makes none."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from hpcjob.logs.events import Checkpoint, Iteration, Validation
from hpcjob.logs.parse import TABLE_NEEDLES, parse

from .conftest import GOLDEN, line

LINES: list[dict[str, Any]] = yaml.safe_load((GOLDEN.parent / "trainer_lines.yml").read_text())


@pytest.mark.parametrize("case", LINES, ids=[str(number) for number in range(len(LINES))])
def test_a_line_of_a_trainer(case: dict[str, Any]) -> None:
    """Numbers are those of the line; a loss on held-out data is no loss of the training."""
    tells = dict(case["tells"])
    events = [event for event in parse(line(case["line"])) if isinstance(event, Iteration | Validation | Checkpoint)]
    if not tells:
        assert events == []
        return
    (event,) = events
    if "held_out_loss" in tells:
        assert isinstance(event, Validation)
        assert event.loss == tells["held_out_loss"]
        return
    assert isinstance(event, Checkpoint if tells.pop("checkpoint", False) else Iteration)
    assert {name: getattr(event, name) for name in tells} == pytest.approx(tells)


_ESPNET = (
    "[gpu01:0/2] 2020-07-19 08:54:09,601 (trainer:464) INFO: 1epoch:train:683-1364batch: iter_time=5.862e-05, "
    "forward_time=0.134, loss=68.722, loss_att=65.930, loss_ctc=75.235, acc=0.125, backward_time=0.111, "
    "optim_step_time=0.030, lr_0=1.028e-05, train_time=1.790"
)
_ESPNET_NOW = (
    "[gpu01] 2026-04-23 04:59:25,764 (trainer:793) INFO: 2epoch:train:1-90batch: iter_time=0.003, forward_time=0.095, "
    "loss_ctc=557.480, loss_att=223.114, acc=4.043e-04, loss=80.856, backward_time=0.041, grad_norm=530.879, "
    "clip=100.000, loss_scale=1.000, optim_step_time=0.010, optim0_lr0=6.250e-07, train_time=0.734"
)
_FUNASR = (
    "[gpu01] 2023-04-23 18:59:48,924 (trainer:777) INFO: 2epoch:train:51-100batch:50num_updates: iter_time=0.008, "
    "loss_att=0.186, acc=0.942, loss_pre=0.005, loss=0.192, optim0_lr0=7.484e-06, train_time=0.753"
)
_ESPNET_EPOCH = (
    "[gpu01] 2020-11-11 16:39:16,073 (trainer:243) INFO: 6epoch results: [train] iter_time=0.001, loss=1.669, "
    "lr_0=0.100, train_time=0.013, time=1 minute and 43.07 seconds, total_count=45000, [valid] loss=1.720, "
    "time=0.94 seconds, total_count=606"
)


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        (_ESPNET, [{"iteration": 1364, "epoch": 1.0, "loss": 68.722, "lr": 1.028e-05}]),
        (_ESPNET_NOW, [{"iteration": 90, "epoch": 2.0, "loss": 80.856, "lr": 6.25e-07, "grad_norm": 530.879}]),
        (_FUNASR, [{"iteration": 100, "epoch": 2.0, "loss": 0.192, "lr": 7.484e-06}]),
        (_ESPNET_EPOCH, [{"at": "epoch 6", "loss": 1.72}]),
        ("ITER 500 TRAIN LOSS 2.31", [{"iteration": 500, "loss": 2.31}]),
        ("ITER 700 VAL LOSS 2.41", [{"at": "iteration 700", "loss": 2.41}]),
        (
            "EPOCH 3 ITER 700/2000 LOSS 2.11 LR 1.0e-4",
            [{"iteration": 700, "train_iters": 2000, "loss": 2.11, "lr": 1e-4}],
        ),
        (
            "STEP 900 | TRAIN LOSS: 1.99 | VAL LOSS: 2.2",
            [{"iteration": 900, "loss": 1.99}, {"iteration": 900, "loss": 2.2}],
        ),
        ("[EPOCH 1] ITERATION 1000: LOSS = NaN", [{"iteration": 1000, "epoch": 1.0}]),
        ("ITER 5: LOSS SCALE 65536.0", []),
        ("PACKET LOSS 0.1% at step 2", []),
    ],
)
def test_a_line_of_espnet_or_in_capitals(text: str, tells: list[dict[str, Any]]) -> None:
    """A batch is counted within its epoch; the sum is the loss, not its parts; an epoch's mean is no step."""
    events = parse(line(text))
    assert [{name: getattr(event, name) for name in told} for event, told in zip(events, tells, strict=True)] == tells
    assert not tells or any(needle in text.encode() for needle in TABLE_NEEDLES), "it is not read from a whole log"
