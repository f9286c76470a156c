"""A checkpoint written in any layout goes on in any other: weights, optimizer state, step and place in the data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked_worlds import stop_file

from tests.neoxlite.training.layouts import LLAMA, TIED, layout, single_process

pytestmark = pytest.mark.ci  # whole runs

Train = Callable[..., Any]
LAYOUTS = [
    *[("dp1", 0), ("dp2", 1), ("dp2", 2), ("dp2", 3), ("tp2", 0), ("pp2", 1), ("pp4", 1)],
    *[("dp2 x tp2", 1), ("dp2 x tp2", 3), ("dp2 x pp2", 1), ("tp2 x pp2", 1)],
]


def check_chain(train: Train, root: Path, layouts: Sequence[tuple[str, int]], **changes: Any) -> None:
    """Train two iterations in each layout, each going on from the one before; compare with an unbroken process."""
    total = 2 * len(layouts)
    expected = single_process(train, total, changes)
    losses, norms = [], []
    for number, (name, stage) in enumerate(layouts, start=1):
        size, keys = layout(name, stage)
        where = {"save": str(root), "load": str(root), "checkpoint_factor": 100, "keep_last_n_checkpoints": 1}
        run = train(size, train_iters=total, **keys, **where, **changes, at={1: stop_file("request")})
        assert run.outcomes[0].iteration == 2 * number
        losses += run.losses
        norms += run.grad_norms
    np.testing.assert_allclose(losses, expected.losses, rtol=1e-5, atol=0)
    np.testing.assert_allclose(norms, expected.grad_norms, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "layouts",
    [
        [("dp2", 1), ("tp2", 0), ("pp2", 1), ("dp2", 3), ("dp1", 0), ("dp2 x pp2", 1)],
        [("dp1", 0), ("dp2", 2), ("dp2 x tp2", 3), ("tp2 x pp2", 1), ("dp2", 1)],
    ],
    ids=["six", "five"],
)
def test_a_run_goes_on_through_layouts(layouts: list[tuple[str, int]], train: Train, tmp_path: Path) -> None:
    """Each kind of layout writes and reads once; the curve is that of one process to 1e-5."""
    check_chain(train, tmp_path / "ck", layouts)


@pytest.mark.parametrize(
    ("changes", "layouts"),
    [
        (LLAMA, [("tp2", 1), ("dp1", 1), ("tp2", 0)]),
        (TIED, [("pp2", 1), ("dp1", 1), ("pp2", 1)]),
        pytest.param(LLAMA, [("dp2 x tp2", 3), ("pp2", 1), ("tp2 x pp2", 1), ("dp2", 3)], marks=pytest.mark.full),
        pytest.param(TIED, [("tp2 x pp2", 1), ("dp2", 3), ("dp2 x pp2", 1), ("tp2", 2)], marks=pytest.mark.full),
    ],
)
def test_stacked_and_tied_matrices_survive(
    changes: dict[str, Any], layouts: list[tuple[str, int]], train: Train, tmp_path: Path
) -> None:
    """Gated MLPs and grouped queries are sliced part by part; a tied matrix is written once and read by two stages."""
    check_chain(train, tmp_path / "ck", layouts, **changes)


@pytest.mark.full
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(LAYOUTS, 2)))
def test_any_layout_goes_on_in_any_other(
    before: tuple[str, int], after: tuple[str, int], train: Train, tmp_path: Path
) -> None:
    """All pairs."""
    check_chain(train, tmp_path / "ck", [before, after])


def test_bf16_keeps_its_master_weights(train: Train, tmp_path: Path) -> None:
    """In bf16 the fp32 weights travel too: from ZeRO-3 over two replicas to stage 1 on one, the curve goes on."""
    common: dict[str, Any] = {"precision": "bfloat16", "train_iters": 6}
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 100}
    first_size, first = layout("dp2", 3)
    second_size, second = layout("dp1", 1)
    unbroken = train(second_size, **second, **common)
    train(first_size, **first, **common, **where, at={2: stop_file("request")})
    resumed = train(second_size, **second, **common, **where)
    # A step of bf16 is 8e-3 of a weight; the loss of a run from rounded masters would be off by far more.
    np.testing.assert_allclose(resumed.losses, unbroken.losses[3:], rtol=2e-4)
