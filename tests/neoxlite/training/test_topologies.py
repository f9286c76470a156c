"""One seed gives one run in every topology: curves of all layouts against those of a single process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from layouts import DROPOUT, LLAMA, TIED, layout

Train = Callable[..., Any]


def check_equal(train: Train, name: str, stage: int, *, recompute: bool, **changes: Any) -> None:
    """Train 20 iterations in a layout and compare losses and global gradient norms with the single process's."""
    expected = _alone(train, changes)
    size, keys = layout(name, stage, recompute=recompute)
    got = train(size, train_iters=20, **keys, **changes)
    np.testing.assert_allclose(got.losses, expected.losses, rtol=1e-5, atol=0)
    np.testing.assert_allclose(got.grad_norms, expected.grad_norms, rtol=1e-5, atol=0)


_ALONE: dict[str, Any] = {}


def _alone(train: Train, changes: Mapping[str, Any]) -> Any:
    """Return the run of one process without ZeRO or recomputation; once for each model."""
    key = repr(sorted(changes.items()))
    if key not in _ALONE:
        size, keys = layout("dp1", 0)
        _ALONE[key] = train(size, train_iters=20, **keys, **changes)
    return _ALONE[key]


@pytest.mark.parametrize(
    ("name", "stage", "recompute"),
    [
        ("tp2", 0, True),
        ("tp2", 1, False),
        ("dp2 x tp2", 0, False),
        ("pp2", 1, True),
        ("pp4", 0, False),
        ("tp2 x pp2", 1, False),
        ("dp2 x pp2", 1, True),
    ],
)
def test_a_topology_gives_the_single_process_s_curve(name: str, stage: int, recompute: bool, train: Train) -> None:
    """Losses and global gradient norms of 20 iterations in fp32 agree to 1e-5."""
    check_equal(train, name, stage, recompute=recompute)


@pytest.mark.parametrize(
    ("name", "changes", "recompute"),
    [("tp2", LLAMA, False), ("tp2 x pp2", TIED, False), ("pp2", DROPOUT, True), ("tp2", DROPOUT, True)],
    ids=["llama", "tied", "dropout-pp2", "dropout-tp2"],
)
def test_a_model_of_another_kind_gives_the_single_process_s_curve(
    name: str, changes: dict[str, Any], recompute: bool, train: Train
) -> None:
    """So do stacked matrices, sliced part by part; a head tied across stages; and dropout under recomputation."""
    check_equal(train, name, 1, recompute=recompute, **changes)


def test_dropout_does_not_depend_on_the_layout_of_the_batch(train: Train) -> None:
    """Each sample has masks of its own: replicas and micro-batches of one sample lose what one process does."""
    alone = _alone(train, DROPOUT)
    got = train(2, train_iters=20, train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=4, **DROPOUT)
    np.testing.assert_allclose(got.losses, alone.losses, rtol=1e-5, atol=0)
