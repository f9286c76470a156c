"""Sequence parallelism, and what activation checkpointing keeps: the curve stays that of a single process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layouts import DROPOUT, LLAMA, TIED, layout, single_process

from neoxlite.config import ConfigError

Train = Callable[..., Any]
_SEQUENCE = {"sequence_parallel": True}
_SELECTIVE = {"checkpoint_activations": True, "recompute_granularity": "selective"}
_PARTS = {"checkpoint_activations": True, "partition_activations": True}
_HOST = {"checkpoint_activations": True, "checkpoint_in_cpu": True}
_BIASES = {"gpt_j_residual": True}


def check_equal(train: Train, name: str, stage: int, model: dict[str, Any], keys: dict[str, Any]) -> None:
    """Train 8 iterations and compare losses and gradient norms with the single process's, to 1e-5."""
    size, given = layout(name, stage, accumulation=2)
    got = train(size, train_iters=8, **{**given, **keys}, **model)
    expected = single_process(train, 8, model)
    np.testing.assert_allclose(got.losses, expected.losses, rtol=1e-5, atol=0)
    np.testing.assert_allclose(got.grad_norms, expected.grad_norms, rtol=1e-5, atol=0)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "stage", "model", "keys"),
    [
        ("tp2 x pp2", 1, TIED, {**_SEQUENCE, "checkpoint_activations": True}),
        ("dp2 x tp2", 2, {}, {**_SEQUENCE, **_SELECTIVE}),
        ("tp2", 0, {**LLAMA, **DROPOUT}, _SEQUENCE),
        *(
            pytest.param(name, stage, model, {**_SEQUENCE, **more}, marks=pytest.mark.full)
            for name, stage, model, more in (
                ("tp2", 1, {}, {}),
                ("tp2", 2, _BIASES, _PARTS),
                ("tp2", 3, TIED, {}),
                ("dp2 x tp2", 2, LLAMA, {"checkpoint_activations": True}),
                ("tp2 x pp2", 1, {**LLAMA, **DROPOUT}, _SELECTIVE),
                ("tp4", 1, {}, _HOST),
                ("tp2", 1, {"pos_emb": "sinusoidal", "hidden_dropout": 0.1}, {}),
                ("tp2", 1, {"pos_emb": "alibi"}, _SELECTIVE),
            )
        ),
    ],
)
def test_sequence_parallel(name: str, stage: int, model: dict[str, Any], keys: dict[str, Any], train: Train) -> None:
    """With every ZeRO stage and recomputation, tied, stacked and with dropout."""
    check_equal(train, name, stage, model, keys)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "stage", "model", "keys"),
    [
        ("dp1", 0, DROPOUT, {**_SELECTIVE, "checkpoint_num_layers": 2}),
        ("tp2", 1, DROPOUT, {**_PARTS, "checkpoint_in_cpu": True}),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("tp2 x pp2", 1, {}, _PARTS),
                ("dp2 x tp2", 3, LLAMA, {**_PARTS, "checkpoint_num_layers": 2}),
                ("tp2", 1, LLAMA, _SELECTIVE),
                ("pp2", 1, TIED, _HOST),
                ("tp2", 1, {"sliding_window_width": 5}, {**_SELECTIVE, **_PARTS}),
            )
        ),
    ],
)
def test_what_is_kept(name: str, stage: int, model: dict[str, Any], keys: dict[str, Any], train: Train) -> None:
    """Selective recomputation, inputs kept in parts, on the host, and of every second block."""
    check_equal(train, name, stage, model, keys)


def test_the_sequence_must_fit(config_of: Callable[..., Any]) -> None:
    """The lengths on both sides that work; without tensor parallelism the key is told to be without effect."""
    with pytest.raises(ConfigError, match=r"cannot share out seq_length 30 over model_parallel_size 4") as caught:
        config_of(4, sequence_parallel=True, model_parallel_size=4, seq_length=30)
    assert caught.value.hint == "nearest: seq_length 28 or 32"
    (told,) = config_of(sequence_parallel=True).warnings
    assert told == "sequence_parallel has no effect: model_parallel_size is 1"
