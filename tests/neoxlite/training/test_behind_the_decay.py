"""Training that goes on behind the end of its learning-rate schedule."""

from __future__ import annotations

import pytest

from neoxlite.errors import ConfigError
from neoxlite.optim.schedule import Schedule
from neoxlite.training.resume import behind_the_decay


def _schedule(style: str, warmup_iter: float = 3200.0) -> Schedule:
    return Schedule(1.6e-4, 1.6e-5, warmup_iter, 320000, style)


def test_a_cosine_that_rises_again_is_told() -> None:
    """GPT-NeoX clamps nothing: 10,000 steps behind the end its rate is 1.635373e-05, above min_lr, and climbs on."""
    told = behind_the_decay(_schedule("cosine"), 330001)
    assert told is not None
    assert "ends at iteration 320000, training at 330001" in told
    assert "to 1.635E-05; lr_decay_iters: 330001 stretches" in told
    assert behind_the_decay(_schedule("cosine"), 320000) is None
    assert behind_the_decay(_schedule("linear"), 330001) is None


@pytest.mark.parametrize("style", ["linear", "cosine", "exponential"])
def test_a_decay_without_length_is_refused(style: str) -> None:
    """warmup: 1.0 divides by 0 at the first step behind it, in GPT-NeoX too; a constant rate has nothing to divide."""
    flat = _schedule(style, 320000.0)
    assert behind_the_decay(flat, 320000) is None
    with pytest.raises(ConfigError, match="its warm-up is the whole decay, 320000 iterations"):
        behind_the_decay(flat, 320001)
    assert behind_the_decay(_schedule("constant", 320000.0), 320001) is None
