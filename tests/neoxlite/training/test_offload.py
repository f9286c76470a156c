"""The optimizer on the host (zero_optimization.offload_optimizer): the same curve, the same checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked_worlds import stop_file
from layouts import layout, single_process

from neoxlite.config import ConfigError

Train = Callable[..., Any]
_CPU = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}


def _offloaded(name: str, stage: int) -> tuple[int, dict[str, Any]]:
    size, keys = layout(name, stage)
    return size, {**keys, "zero_optimization": {**keys["zero_optimization"], **_CPU}}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("dp2", 1),
        ("dp2", 3),
        ("pp2", 1),
        *(
            pytest.param(name, stage, marks=pytest.mark.full)
            for name, stage in (
                ("dp1", 2),
                ("dp2", 2),
                ("tp2", 2),
                ("dp2 x tp2", 3),
                ("dp2 x pp2", 1),
                ("tp2 x pp2", 1),
            )
        ),
    ],
)
def test_the_curve_is_that_without_offload(name: str, stage: int, train: Train) -> None:
    """Losses and gradient norms of 8 iterations agree to 1e-5 with those of a single process without it."""
    size, keys = _offloaded(name, stage)
    got = train(size, train_iters=8, **keys)
    expected = single_process(train, 8, {})
    np.testing.assert_allclose(got.losses, expected.losses, rtol=1e-5, atol=0)
    np.testing.assert_allclose(got.grad_norms, expected.grad_norms, rtol=1e-5, atol=0)


@pytest.mark.ci
def test_checkpoints_go_to_and_from_the_host(train: Train, tmp_path: Path) -> None:
    """A run that goes on with, without and with offload, at stages 2, 1 and 3, has the unbroken curve."""
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 100}
    runs = [_offloaded("dp1", 2), layout("dp1", 1), _offloaded("dp2", 3)]
    losses: list[float] = []
    for size, keys in runs:
        losses += train(size, train_iters=6, **keys, **where, at={1: stop_file("request")}).losses
    np.testing.assert_allclose(losses, single_process(train, 6, {}).losses, rtol=1e-5, atol=0)


@pytest.mark.full
def test_bf16(train: Train) -> None:
    """With fp32 sums of the gradients the curve is bf16's without offload."""
    size, keys = layout("dp1", 2)
    expected = train(size, train_iters=8, **keys, precision="bfloat16")
    size, keys = _offloaded("dp1", 2)
    got = train(size, train_iters=8, **keys, precision="bfloat16")
    np.testing.assert_allclose(got.losses, expected.losses, rtol=1e-4)


@pytest.mark.parametrize(
    ("block", "message", "hint"),
    [
        ({"stage": 0, **_CPU}, "needs ZeRO, and zero_optimization.stage is 0", "zero_optimization.stage: 1"),
        ({"stage": 2, "offload_optimizer": {"device": "nvme"}}, "device: 'nvme' is not supported", "use cpu, or none"),
        ({"stage": 2, "offload_optimizer": {"devise": "cpu"}}, "devise is not known", "device: cpu and pin_memory"),
        ({"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": 3}}, "pin_memory: 3", "true or false"),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, "offload_param: {'device': 'cpu'}", "remove offload_param"),
    ],
)
def test_what_cannot_be_is_refused(block: Any, message: str, hint: str, config_of: Callable[..., Any]) -> None:
    """With the line of the file and the nearest that works."""
    with pytest.raises(ConfigError) as caught:
        config_of(zero_optimization=block)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_device_none_is_none(config_of: Callable[..., Any]) -> None:
    """As DeepSpeed has it; the older spelling means the host."""
    assert config_of(zero_optimization={"stage": 2, "offload_optimizer": {"device": "none"}}).offload is None
    assert config_of(zero_optimization={"stage": 2, "cpu_offload": True}).offload is not None


def test_direct_is_refused(config_of: Callable[..., Any], deepspeed_ready: None) -> None:
    """neoxlite's own optimizer of stage 1 has its states on the device."""
    import torch

    from neoxlite.optim.build import uses_direct_zero

    zero = {"stage": 1, "implementation": "direct", **_CPU}
    cfg = config_of(zero_optimization=zero, bf16={"enabled": True})
    with pytest.raises(ConfigError, match="direct cannot be used: zero_optimization"):
        uses_direct_zero(cfg, torch.device("cpu"))
