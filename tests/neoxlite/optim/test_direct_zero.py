"""The direct ZeRO optimizer against DeepSpeed's own, whose layout and checkpoints it shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from neoxlite.errors import ConfigError
from neoxlite.optim.adamw import Partition, Rates, clip_coefficient, update

Train = Callable[..., Any]


def zero(implementation: str) -> dict[str, Any]:
    """Stage 1 by one of the two."""
    return {"stage": 1, "implementation": implementation}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("ranks", "changes"),
    [
        (1, {"gradient_accumulation_steps": 1}),
        (1, {"gradient_accumulation_steps": 3}),
        (1, {"gradient_accumulation_steps": 3, "data_types": {"grad_accum_dtype": "bf16"}}),
        (2, {"gradient_accumulation_steps": 1}),
        (2, {"gradient_accumulation_steps": 3}),
        (2, {"gradient_accumulation_steps": 2, "model_parallel_size": 2}),
        (2, {"gradient_accumulation_steps": 1, "gradient_clipping": 0.0, "weight_decay": 0.0}),
    ],
    ids=["alone", "accumulating", "in bf16", "two replicas", "two replicas accumulating", "two slices", "unclipped"],
)
def test_curves_equal_those_of_deepspeed(train: Train, ranks: int, changes: dict[str, Any]) -> None:
    """Losses and gradient norms over ten bf16 steps; the two differ in the order of sums alone."""
    common = {"precision": "bfloat16", "gradient_clipping": 0.1, **changes}
    direct = train(ranks, **common, zero_optimization=zero("direct"))
    stock = train(ranks, **common, zero_optimization=zero("deepspeed"))
    np.testing.assert_allclose(direct.losses, stock.losses, atol=1e-3, rtol=0)
    np.testing.assert_allclose(direct.grad_norms, stock.grad_norms, rtol=2e-2)
    assert direct.losses[-1] < direct.losses[0] - 0.1, "it learns"


@pytest.mark.parametrize(("first", "second"), [("direct", "deepspeed"), ("deepspeed", "direct")])
def test_checkpoints_of_one_load_in_the_other(first: str, second: str, train: Train, tmp_path: Path) -> None:
    """Two replicas, cut at step 5: the next loss is that of a run that was not cut, to the bit."""
    common = {"precision": "bfloat16", "gradient_accumulation_steps": 1}
    unbroken = train(2, **common, zero_optimization=zero(first))
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 5}
    train(2, **common, **where, zero_optimization=zero(first), train_iters=5, lr_decay_iters=10)
    resumed = train(2, **common, **where, zero_optimization=zero(second))
    assert resumed.losses[0] == unbroken.losses[5]
    np.testing.assert_allclose(resumed.losses, unbroken.losses[5:], atol=1e-3, rtol=0)


@pytest.mark.ci
@pytest.mark.parametrize(("piece", "direct_at_most"), [(1000, 8), (1000, 1)], ids=["pieces", "along a ring"])
def test_the_way_between_replicas_does_not_matter(
    piece: int, direct_at_most: int, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent piece by piece from each replica to each other, in one piece, or in a collective: the same to the bit.

    But for the norm, whose squares are added in another order; so nothing is clipped.
    """
    from neoxlite.optim import replicas

    common = {"precision": "bfloat16", "gradient_accumulation_steps": 1, "zero_optimization": zero("direct")}
    common["gradient_clipping"] = 0.0
    whole = train(2, **common)
    monkeypatch.setattr(replicas, "PIECE", piece)
    monkeypatch.setattr(replicas, "_DIRECT_AT_MOST", direct_at_most)
    other = train(2, **common)
    assert other.losses == whole.losses
    np.testing.assert_allclose(other.grad_norms, whole.grad_norms, rtol=1e-6)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_update_is_that_of_torch(weight_decay: float) -> None:
    """Three steps of a flat partition against ``torch.optim.AdamW`` with the clipped gradients, in fp32."""
    generator = torch.Generator().manual_seed(1)
    reference = torch.nn.Parameter(torch.randn(1000, generator=generator))
    master = reference.detach().clone()
    part = Partition(torch.zeros(1000, dtype=torch.bfloat16), master, torch.zeros(1000), torch.zeros(1000))
    other = torch.optim.AdamW([reference], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=weight_decay)
    for step in range(1, 4):
        gradient = torch.randn(1000, generator=generator)
        reference.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_([reference], 1.0)
        other.step()
        rates = Rates(1e-2, 0.9, 0.95, 1e-8, weight_decay, step)
        update(part, gradient, clip_coefficient(gradient.norm(), 1.0), rates)
    torch.testing.assert_close(master, reference.detach(), atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(part.weights, reference.detach().to(torch.bfloat16), atol=0, rtol=0)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_what_is_not_finite_changes_nothing(number: float) -> None:
    """One gradient that is not finite: weights and moments stay as they are."""
    part = Partition(torch.ones(4, dtype=torch.bfloat16), torch.ones(4), torch.zeros(4), torch.zeros(4))
    gradient = torch.tensor([1.0, number, 0.0, 2.0])
    update(part, gradient, clip_coefficient(gradient.norm(), 1.0), Rates(0.1, 0.9, 0.95, 1e-8, 0.1, 1))
    assert part.master.tolist() == part.weights.tolist() == [1.0] * 4
    assert part.exp_avg.tolist() == part.exp_avg_sq.tolist() == [0.0] * 4


def skipping(ranks: Any, cfg: Any) -> tuple[list[bool], int, int]:
    """Take three steps, of which the last rank's gradient spoils the second: (skipped, steps counted, DeepSpeed's)."""
    import deepspeed

    from neoxlite.checkpoint.optimizer_state import OptimizerState
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.parallel.topology import Grid, create_topology
    from neoxlite.training.create import create_engine

    deepspeed.logger.setLevel("ERROR")
    join_world(ranks, torch.device("cpu"))
    topology = create_topology(Grid(1, cfg.data_parallel_size, cfg.model_parallel_size), ranks.rank)
    engine = create_engine(cfg, ModelSpec.from_config(cfg, 512), topology, torch.device("cpu"), None)
    parameter = next(engine.module.parameters())
    spoils = False
    parameter.register_hook(lambda grad: grad * float("nan") if spoils else grad)  # type: ignore[no-untyped-call]
    batch = torch.arange(cfg.train_micro_batch_size_per_gpu * (cfg.seq_length + 1)).remainder(64)
    skipped = []
    for iteration in range(1, 4):
        spoils = iteration == 2 and ranks.rank == ranks.world_size - 1
        engine.set_lr(0.001)
        step = engine.train_step([batch.view(-1, cfg.seq_length + 1)], iteration)
        skipped.append(step.skipped)
    steps = OptimizerState(engine).step
    assert all(parameter.isfinite().all() for parameter in engine.module.parameters())
    leave_world()
    return skipped, steps, engine.deepspeed.skipped_steps


@pytest.mark.parametrize("slices", [1, 2])
def test_a_step_that_one_rank_spoils_is_skipped_by_all_and_not_counted(slices: int, world: Any, config_of: Any) -> None:
    """Two replicas, or two slices of a model: Adam's count, which corrects its bias, is of the steps taken."""
    changes = {"precision": "bfloat16", "gradient_accumulation_steps": 1, "model_parallel_size": slices}
    cfg = config_of(2, **changes, zero_optimization=zero("direct"))
    assert world.run(2, skipping, cfg) == [([False, True, False], 2, 1)] * 2


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"precision": "fp32"}, "precision: fp32"), ({"zero_optimization": {"stage": 2}}, "zero_optimization.stage: 2")],
)
def test_what_it_cannot_do_is_refused_by_key(changes: dict[str, Any], key: str, config_of: Any) -> None:
    """Asked for where it does not go: an error. Not asked for: DeepSpeed's is taken."""
    from neoxlite.optim.build import uses_direct_zero

    changes = {"precision": "bfloat16", "zero_optimization": {"stage": 1}, **changes}
    changes["zero_optimization"] = {**changes["zero_optimization"], "implementation": "direct"}
    with pytest.raises(ConfigError, match=key):
        uses_direct_zero(config_of(**changes), torch.device("cpu"))


def test_auto_takes_it_on_the_gpus_of_a_node(config_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA in bf16, with a line where something keeps it away; never on a CPU unless asked."""
    from neoxlite.optim.build import uses_direct_zero

    monkeypatch.setattr("neoxlite.optim.build.why_no_triton", lambda _: None)
    cfg = config_of(precision="bfloat16", zero_optimization={"stage": 1})
    assert uses_direct_zero(cfg, torch.device("cuda")) == (True, None)
    assert uses_direct_zero(cfg, torch.device("cpu")) == (False, None)
    assert uses_direct_zero(config_of(8, precision="bfloat16"), torch.device("cuda")) == (True, None)
    several, line = uses_direct_zero(config_of(16, precision="bfloat16"), torch.device("cuda"))
    assert not several
    assert "was not tried on several" in str(line)
    piped = config_of(2, precision="bfloat16", zero_optimization={"stage": 1}, pipe_parallel_size=2)
    assert uses_direct_zero(piped, torch.device("cuda")) == (True, None)
    monkeypatch.setattr("neoxlite.optim.build.why_no_triton", lambda _: "Triton is not installed")
    without, line = uses_direct_zero(cfg, torch.device("cuda"))
    assert not without
    assert "Triton is not installed" in str(line)
    asked = config_of(precision="bfloat16", zero_optimization={"stage": 1, "implementation": "direct"})
    with pytest.raises(ConfigError, match="direct cannot be used: Triton is not installed"):
        uses_direct_zero(asked, torch.device("cuda"))
