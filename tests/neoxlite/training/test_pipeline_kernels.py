"""What a pipeline computes faster: head and loss in one, deferred sums, the direct optimizer, stages of equal work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layouts import LLAMA, TIED, layout, single_process

Train = Callable[..., Any]
FUSED = {"kernels": dict.fromkeys(("fused_head_loss", "fused_gelu", "fused_rotary", "deferred_residual"), True)}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "model", "keys"),
    [
        ("tp2 x pp2", {}, FUSED),
        ("pp2", TIED, {"kernels": {"fused_head_loss": True}}),
        pytest.param("dp2 x pp2", LLAMA, {"kernels": {"fused_head_loss": True}}, marks=pytest.mark.full),
    ],
)
def test_curves_are_those_of_one_process(name: str, model: dict[str, Any], keys: dict[str, Any], train: Train) -> None:
    """In fp32, asked for on CPUs: losses, norms and validation to 1e-5, of sliced, tied and masked heads."""
    size, given = layout(name, 1)
    got = train(size, train_iters=8, **given, **keys, **model)
    expected = single_process(train, 8, model)
    np.testing.assert_allclose(got.losses, expected.losses, rtol=1e-5, atol=0)
    np.testing.assert_allclose(got.grad_norms, expected.grad_norms, rtol=1e-5, atol=0)
