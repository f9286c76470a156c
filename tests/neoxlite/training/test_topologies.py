"""One seed gives one run in every topology: curves of all layouts against those of a single process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layouts import ALIBI, DROPOUT, LLAMA, TIED, layout, single_process

pytestmark = pytest.mark.ci  # whole runs

Train = Callable[..., Any]


WHOLE = ("dp1", "dp2", "tp2", "dp2 x tp2")
STAGED = ("pp2", "pp4", "tp2 x pp2", "dp2 x pp2")
ALL = [
    *itertools.product(WHOLE, (0, 1, 2, 3), (False, True)),
    # Stages 2 and 3 are refused with a pipeline, and 0 becomes 1.
    *itertools.product(STAGED, (0, 1), (False, True)),
]
COVERING = [
    # Every topology with every stage it can have, and with recomputation on and off; so has every stage.
    *((name, stage, (place + stage) % 2 == 1) for place, name in enumerate(WHOLE) for stage in (0, 1, 2, 3)),
    *((name, int(recompute), recompute) for name in STAGED for recompute in (False, True)),
]


def accumulation_of(name: str, *, recompute: bool) -> int:
    """Return how many micro-batches a step has: those that fill a pipeline, else 2 in half of the runs and 1 in others.

    Of the covering set every stage accumulates with replicas in one run.
    """
    if name in STAGED:
        return 4 if name == "pp4" else 2
    return 2 if recompute != (name == "dp2") else 1


def check_equal(train: Train, name: str, stage: int, *, recompute: bool, iterations: int = 8, **changes: Any) -> None:
    """Train in a layout and compare losses and global gradient norms with the single process's."""
    expected = single_process(train, iterations, changes)
    size, keys = layout(name, stage, recompute=recompute, accumulation=accumulation_of(name, recompute=recompute))
    got = train(size, train_iters=iterations, **keys, **changes)
    np.testing.assert_allclose(got.losses, expected.losses, rtol=1e-5, atol=0)
    np.testing.assert_allclose(got.grad_norms, expected.grad_norms, rtol=1e-5, atol=0)


def test_the_covering_set_covers() -> None:
    """It is a part of all combinations and has every pair of values that any of them has."""
    assert set(COVERING) <= set(ALL)

    def pairs(runs: list[tuple[str, int, bool]]) -> set[Any]:
        # A pipeline's stage 0 is its stage 1.
        real = [(name, max(stage, int(name in STAGED)), recompute) for name, stage, recompute in runs]
        return {(places, run[places[0]], run[places[1]]) for run in real for places in ((0, 1), (0, 2), (1, 2))}

    assert pairs(COVERING) == pairs(ALL)
    accumulating = {
        stage for name, stage, part in COVERING if "dp2" in name and accumulation_of(name, recompute=part) > 1
    }
    assert accumulating == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("name", "stage", "recompute"),
    [pytest.param(*run, marks=[] if run in COVERING else pytest.mark.full) for run in ALL],
)
def test_a_topology_gives_the_single_process_s_curve(name: str, stage: int, recompute: bool, train: Train) -> None:
    """Losses and global gradient norms of 20 iterations in fp32 agree to 1e-5."""
    changes = {} if name in STAGED else {"num_layers": 2}  # stages need something to share out
    check_equal(train, name, stage, recompute=recompute, iterations=20, **changes)


@pytest.mark.parametrize(
    ("name", "stage", "changes"),
    [
        ("tp2", 1, LLAMA),
        ("tp2", 1, ALIBI),
        ("tp2 x pp2", 1, TIED),
        ("pp2", 1, DROPOUT),
        pytest.param("dp2", 3, TIED, marks=pytest.mark.full),
        pytest.param("tp2", 0, DROPOUT, marks=pytest.mark.full),
        pytest.param("dp2 x tp2", 2, LLAMA, marks=pytest.mark.full),
        pytest.param("dp2 x tp2", 3, TIED, marks=pytest.mark.full),
        pytest.param("dp2 x pp2", 1, TIED, marks=pytest.mark.full),
        pytest.param("dp2 x tp2", 3, DROPOUT, marks=pytest.mark.full),
        pytest.param("tp2 x pp2", 1, {**LLAMA, **DROPOUT}, marks=pytest.mark.full),
        pytest.param("tp2 x pp2", 1, {**ALIBI, **DROPOUT}, marks=pytest.mark.full),
    ],
)
def test_a_model_of_another_kind_gives_the_single_process_s_curve(
    name: str, stage: int, changes: dict[str, Any], train: Train
) -> None:
    """So do matrices sliced part by part, ALiBi's slopes in a window, a head tied across stages, and dropout."""
    check_equal(train, name, stage, recompute="hidden_dropout" in changes, **changes)


def test_dropout_does_not_depend_on_the_layout_of_the_batch(train: Train) -> None:
    """Each sample has masks of its own: replicas and micro-batches of one sample lose what one process does."""
    alone = single_process(train, 8, DROPOUT)
    _, keys = layout("dp2", 1)
    got = train(
        2, train_iters=8, **{**keys, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4}, **DROPOUT
    )
    np.testing.assert_allclose(got.losses, alone.losses, rtol=1e-5, atol=0)
