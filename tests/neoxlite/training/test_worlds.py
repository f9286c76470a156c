"""Whole runs in worlds of one and two ranks: equality, resumption, precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked_worlds import stop_file

Train = Callable[..., Any]


def test_two_ranks_with_zero_1_follow_one(train: Train) -> None:
    """The same global batch on one rank and on two gives one loss curve, to 1e-5; test_topologies has the others."""
    keys = {"gradient_accumulation_steps": 1, "train_iters": 6}
    alone = train(1, **keys, train_micro_batch_size_per_gpu=4, zero_optimization={"stage": 0})
    both = train(2, **keys)
    np.testing.assert_allclose(both.losses, alone.losses, atol=1e-5, rtol=0)
    np.testing.assert_allclose(both.grad_norms, alone.grad_norms, rtol=1e-4)


@pytest.mark.parametrize(("precision", "stages"), [("fp32", 1), ("bfloat16", 1), ("bfloat16", 2)])
def test_a_stopped_run_goes_on_bit_by_bit(precision: str, stages: int, train: Train, tmp_path: Path) -> None:
    """Two ranks, replicas or stages, with dropout and accumulation 2, stopped and resumed, lose as unbroken ones."""
    common: dict[str, Any] = {"hidden_dropout": 0.1, "attention_dropout": 0.1, "precision": precision}
    common |= {"pipe_parallel_size": stages, "train_iters": 6}
    unbroken = train(2, **common)
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 100}
    first = train(2, **common, **where, at={2: stop_file("walltime")})
    second = train(2, **common, **where)
    assert [run.outcomes[0].iteration for run in (first, second)] == [3, 6]
    assert first.losses + second.losses == unbroken.losses
    assert first.grad_norms + second.grad_norms == unbroken.grad_norms


@pytest.mark.ci
def test_bf16_follows_fp32_without_a_phantom_step(train: Train) -> None:
    """bf16 with ZeRO-1 stays within bf16's rounding of fp32, also in its first steps, where a spurious step would show.

    DeepSpeed without ZeRO begins a bf16 run with a step of zero gradients; the configuration's stage 0 is raised to 1.
    """
    exact = train(1, zero_optimization={"stage": 0}, train_iters=5)
    for stage in (0, 1):
        rounded = train(1, precision="bfloat16", zero_optimization={"stage": stage}, train_iters=5)
        np.testing.assert_allclose(rounded.losses, exact.losses, atol=6e-3, rtol=0)


@pytest.mark.ci
def test_activation_checkpointing_changes_nothing(train: Train) -> None:
    """With recomputation and dropout, in the engine, the losses are those without, bit by bit."""
    dropout = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
    plain, again = (train(1, **dropout, train_iters=5, checkpoint_activations=active) for active in (False, True))
    assert again.losses == plain.losses


def test_every_parameter_gets_a_gradient_in_bf16(world: Any, config_of: Any) -> None:
    """After one step in bf16 with fp32 accumulation no master weight is where it was, the head's among them."""
    moved = world.run(1, _moved_parameters, config_of(precision="bfloat16", weight_decay=0.0, warmup=0.0))[0]
    assert moved
    assert all(moved.values()), moved


def _moved_parameters(ranks: Any, cfg: Any) -> dict[str, bool]:
    from neoxlite.checkpoint.optimizer_state import MASTER, OptimizerState
    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.init import initialise
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import join_world
    from neoxlite.parallel.topology import Topology
    from neoxlite.training.engine import Engine

    join_world(ranks, torch.device("cpu"))
    spec = ModelSpec.from_config(cfg, 64)
    model = GPTModel(spec)
    initialise(model, spec, seed=1)
    engine = Engine(cfg, model, Topology(), torch.device("cpu"), None)
    before = {f.name: f.tensors[MASTER].clone() for f in OptimizerState(engine).fragments()}
    engine.set_lr(1e-3)
    batch = np.random.default_rng(0).integers(0, 64, (2, 33))
    engine.train_step([batch, batch], 1)
    return {f.name: not torch.equal(f.tensors[MASTER], before[f.name]) for f in OptimizerState(engine).fragments()}
