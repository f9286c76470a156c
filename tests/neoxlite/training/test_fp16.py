"""fp16 with a loss scale: DeepSpeed's rules, and whole trainings in all layouts.

A CPU is refused; its fp16 is right, though slow, so that these trainings run on it with the refusal out of the way.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from forked_worlds import stop_file
from layouts import layout, single_process

from neoxlite.config import ConfigError
from neoxlite.optim.loss_scale import LossScale, LossScaleError

Train = Callable[..., Any]
_BLOCK: dict[str, Any] = {"enabled": True, "initial_scale_power": 10}


@pytest.fixture
def fp16_on_cpu(deepspeed_ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let forked ranks train in fp16 here."""
    from deepspeed.accelerator import get_accelerator

    monkeypatch.setattr("neoxlite.training.engine.computes_in_fp16", lambda device: True)
    monkeypatch.setattr(get_accelerator(), "is_fp16_supported", lambda: True)


def _both(block: dict[str, Any], overflows: list[bool]) -> tuple[list[float], list[float]]:
    """Return the scale after each step, ours and DeepSpeed's, up to the step at which one gives up."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

    ours = LossScale.from_block(block)
    theirs = DynamicLossScaler(
        init_scale=2.0 ** block["initial_scale_power"],
        scale_window=block["loss_scale_window"],
        min_scale=block["min_loss_scale"],
        delayed_shift=block["hysteresis"],
        consecutive_hysteresis=block["consecutive_hysteresis"],
    )
    scales: tuple[list[float], list[float]] = ([], [])
    for mine, update, scaler in ((scales[0], ours.settle, ours), (scales[1], lambda: None, theirs)):
        with contextlib.suppress(Exception):  # DeepSpeed's has no class of its own
            for overflow in overflows:
                scaler.update_scale(overflow)
                update()
                mine.append(scaler.cur_scale)
    return scales


@pytest.mark.parametrize("seed", range(20))
def test_the_rules_are_deepspeed_s(seed: int, deepspeed_ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 steps with random overflows give DynamicLossScaler's scales, for random settings."""
    monkeypatch.setattr("deepspeed.comm.get_rank", lambda: 0)
    dice = random.Random(seed)
    block = {
        "initial_scale_power": dice.randint(0, 16),
        "loss_scale_window": dice.randint(1, 6),
        "hysteresis": dice.randint(1, 4),
        "min_loss_scale": dice.choice([1, 2, 0.25]),
        "consecutive_hysteresis": dice.random() < 0.3,
    }
    frequency = dice.choice([0.05, 0.3, 0.7])
    ours, theirs = _both(block, [dice.random() < frequency for _ in range(200)])
    assert ours == theirs


@pytest.mark.parametrize("seed", range(5))
def test_hysteresis_1_is_the_rule_without_zero(seed: int, deepspeed_ready: None) -> None:
    """200 steps as FP16_Optimizer, which GPT-NeoX has at stage 0, scales them: it halves at each overflow, whatever the
    fp16 block says of hysteresis. At the least scale it goes on, where this ends."""
    from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer

    dice = random.Random(seed)
    window = dice.randint(1, 6)
    theirs = SimpleNamespace(
        verbose=False,
        loss_scale_config=SimpleNamespace(
            dynamic_loss_scale=True,
            cur_scale=2.0**16,
            cur_iter=0,
            last_overflow_iter=-1,
            scale_factor=2.0,
            scale_window=window,
            min_loss_scale=2.0**-200,
        ),
    )
    ours = LossScale.from_block({"loss_scale_window": window, "hysteresis": 1, "min_loss_scale": 2.0**-200})
    for _ in range(200):
        overflow = dice.random() < 0.3
        FP16_Optimizer._update_scale(theirs, overflow)
        ours.update_scale(overflow)
        ours.settle()
        assert ours.scale == theirs.loss_scale_config.cur_scale


def test_halved_after_hysteresis_doubled_after_the_window() -> None:
    """GPT-NeoX's defaults with a window of 3: two overflows halve, four good steps double, a state goes on."""
    scale = LossScale.from_block({"loss_scale_window": 3})
    seen = []
    for overflow in (True, True, True, False, False, False, False):
        scale.update_scale(overflow)
        scale.settle()
        seen.append(scale.scale)
    assert seen == [65536, 32768, 16384, 16384, 16384, 16384, 32768]
    again = LossScale.from_block({"loss_scale_window": 3})
    again.restore(json.loads(json.dumps(scale.state())))
    for overflow in (True, False, False, False, False, True, True):
        for one in (scale, again):
            one.update_scale(overflow)
            one.settle()
        assert again.scale == scale.scale
    assert scale.scale == 32768


def test_the_least_scale_ends_the_run() -> None:
    """At min_loss_scale an overflow has no way out; a static scale stays whatever happens."""
    scale = LossScale.from_block({"initial_scale_power": 1, "hysteresis": 1})
    scale.update_scale(True)
    scale.settle()
    scale.update_scale(True)
    with pytest.raises(LossScaleError, match="overflows fp16 at the least loss scale, 1"):
        scale.settle()
    static = LossScale.from_block({"loss_scale": 128})
    for overflow in (True, True, True, False):
        static.update_scale(overflow)
        static.settle()
    assert static.scale == 128


def test_a_cpu_is_refused(train: Train) -> None:
    """With what to do."""
    with pytest.raises(AssertionError, match="fp16 trains on GPUs only, and this run has none") as caught:
        train(fp16=_BLOCK)
    assert "--set fp16.enabled=false --set precision=bfloat16" in str(caught.value)


def test_what_does_not_go_with_a_loss_scale(config_of: Callable[..., Any], deepspeed_ready: None) -> None:
    """neoxlite's own optimizer of stage 1, and the head with its loss; where nothing is said they are left out."""
    import torch

    from neoxlite.model.kernels import choose_kernels
    from neoxlite.model.spec import ModelSpec
    from neoxlite.optim.build import uses_direct_zero
    from neoxlite.parallel.topology import Topology

    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    cfg = config_of(fp16=_BLOCK)
    assert uses_direct_zero(cfg, cuda) == (False, None)
    spec = ModelSpec.from_config(cfg, 512)
    assert not choose_kernels(cfg, spec, Topology(), cpu).fused_head_loss
    with pytest.raises(ConfigError, match="implementation: direct cannot be used: precision: fp16"):
        uses_direct_zero(config_of(fp16=_BLOCK, zero_optimization={"stage": 1, "implementation": "direct"}), cuda)
    with pytest.raises(ConfigError, match=r"kernels\.fused_head_loss: true cannot be: precision fp16"):
        choose_kernels(config_of(fp16=_BLOCK, kernels={"fused_head_loss": True}), spec, Topology(), cpu)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("dp1", 3),
        ("tp2", 1),
        ("pp2", 1),
        *(
            pytest.param(name, stage, marks=pytest.mark.full)
            for name, stage in (("dp1", 1), ("dp1", 2), ("dp2", 1), ("dp2", 3), ("tp2 x pp2", 1))
        ),
    ],
)
def test_layouts(name: str, stage: int, train: Train, fp16_on_cpu: None) -> None:
    """20 iterations are within fp16's rounding of the fp32 curve, though the scale doubles four times."""
    size, keys = layout(name, stage)
    block = {**_BLOCK, "loss_scale_window": 4}
    got = train(size, train_iters=20, **keys, fp16=block)
    expected = single_process(train, 20, {})
    np.testing.assert_allclose(got.losses, expected.losses, rtol=1e-3)
    np.testing.assert_allclose(got.grad_norms, expected.grad_norms, rtol=2e-2)
    assert [entry["loss_scale"] for entry in got.metrics] == [2.0 ** (10 + step // 4) for step in range(20)]


@pytest.mark.ci
def test_overflows_are_skipped_and_a_checkpoint_keeps_the_scale(
    train: Train, fp16_on_cpu: None, tmp_path: Path
) -> None:
    """A scale that overflows halves until it does not; a resumed run has the scales and losses of the unbroken one."""
    block = {"enabled": True, "initial_scale_power": 28, "hysteresis": 2, "loss_scale_window": 3}
    common = {"fp16": block, "train_iters": 24}
    unbroken = train(1, **common).metrics
    skipped = [entry["skipped"] for entry in unbroken]
    lost = skipped.index(0)
    assert skipped[:lost] == [1] * lost
    assert lost >= 2
    # The first overflow is forgiven.
    assert [entry["loss_scale"] for entry in unbroken[:lost]] == [2.0 ** (28 - step) for step in range(lost)]
    assert len({entry["lr"] for entry in unbroken[:lost]}) == 1  # no step, no schedule
    assert unbroken[-1]["loss"] < 0.9 * unbroken[lost]["loss"]
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 100}
    stopped = train(1, **common, **where, at={lost + 5: stop_file("request")}).metrics
    resumed = train(1, **common, **where).metrics
    for key in ("loss", "loss_scale", "skipped"):
        assert [entry[key] for entry in stopped + resumed] == [entry[key] for entry in unbroken]


class _AtOnce(LossScale):
    """Changes in the middle of the step, as DeepSpeed's does."""

    def update_scale(self, overflow: bool) -> None:
        super().update_scale(overflow)
        self.settle()


@pytest.mark.ci
def test_a_scale_that_doubles_within_the_step_halves_its_gradient(
    train: Train, fp16_on_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why the scale is not DeepSpeed's own: the fifth step, at which a window of four ends, has half the norm."""
    monkeypatch.setattr("neoxlite.training.engine.LossScale", _AtOnce)
    size, keys = layout("dp1", 3)
    got = train(size, train_iters=6, lr_decay_iters=20, **keys, fp16={**_BLOCK, "loss_scale_window": 4})
    expected = single_process(train, 20, {}).grad_norms
    assert got.grad_norms[3] == pytest.approx(expected[3], rel=2e-2)
    assert got.grad_norms[4] == pytest.approx(expected[4] / 2, rel=2e-2)
