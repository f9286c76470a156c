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
        pytest.param("pp2", TIED, {"kernels": {"fused_head_loss": True}}, marks=pytest.mark.full),
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


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "model", "accumulation"),
    [
        ("pp2", TIED, 4),
        pytest.param("pp2", {}, 1, marks=pytest.mark.full),
        pytest.param("dp2 x pp2", TIED, 4, marks=pytest.mark.full),
        pytest.param("tp2 x pp2", {"data_types": {"grad_accum_dtype": "bf16"}}, 4, marks=pytest.mark.full),
        pytest.param("pp4", {"num_layers": 4}, 4, marks=pytest.mark.full),
    ],
)
def test_the_direct_optimizer_in_stages(name: str, model: dict[str, Any], accumulation: int, train: Train) -> None:
    """In bf16 beside DeepSpeed's and beside stages without fused heads, whose gradient neither may clear."""
    size, keys = layout(name, 1)
    keys |= {"gradient_accumulation_steps": accumulation, "precision": "bfloat16", "gradient_clipping": 0.1, **model}
    stock, direct = ({"zero_optimization": {"stage": 1, "implementation": by}} for by in ("deepspeed", "direct"))
    fused = {"kernels": {"fused_head_loss": True}}
    plain = train(size, **{**keys, **stock})
    for changes in (stock, direct):
        got = train(size, **{**keys, **changes, **fused})
        np.testing.assert_allclose(got.losses, plain.losses, atol=2e-3, rtol=0)
        np.testing.assert_allclose(got.grad_norms, plain.grad_norms, rtol=2e-2)
    assert got.losses[-1] < got.losses[0] - 0.1, "it learns"


@pytest.mark.ci
@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (("pp2", "direct"), ("pp2", "deepspeed")),
        pytest.param(("pp2", "deepspeed"), ("dp2", "direct"), marks=pytest.mark.full),
        pytest.param(("tp2", "direct"), ("pp2", "direct"), marks=pytest.mark.full),
    ],
)
def test_checkpoints_pass_between_layouts_and_optimizers(
    writer: tuple[str, str], reader: tuple[str, str], train: Train, tmp_path: Any
) -> None:
    """Cut at step 5 and resumed by the other: the losses of a run that was not cut, within bf16's rounding."""

    def run(who: tuple[str, str], **changes: Any) -> Any:
        size, keys = layout(who[0], 1)
        zero = {"zero_optimization": {"stage": 1, "implementation": who[1]}, "precision": "bfloat16"}
        return train(size, **{**keys, **TIED, **zero, **changes})

    unbroken = run(writer)
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 5}
    run(writer, **where, train_iters=5, lr_decay_iters=10)
    resumed = run(reader, **where)
    np.testing.assert_allclose(resumed.losses, unbroken.losses[5:], atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("size", "bounds", "excesses"),
    [("1-3B", [0, 15, 29], ("7.3%", "0.4%")), ("2-7B", [0, 19, 37], ("4.6%", "1.4%"))],
)
def test_stages_of_equal_work(size: str, bounds: list[int], excesses: tuple[str, str]) -> None:
    """1.3B: blocks of 109.1 MFLOP a token, a head of 206.0: 1,309 | 1,515 becomes 1,418 | 1,406 with 13 | 11 blocks.

    2.7B: 167.9 and 257.6: 2,685 | 2,943 becomes 2,853 | 2,775 with 17 | 15 blocks.
    """
    from importlib import resources

    from neoxlite.config import load_config
    from neoxlite.training.stages import balance_note, stage_bounds

    path = str(resources.files("neoxlite") / "configs" / f"{size}.yml")
    changes = {"pipe_parallel_size": 2}
    usual = load_config(path, overrides=changes, world_size=2)
    balanced = load_config(path, overrides={**changes, "pipe_partition_method": "flops"}, world_size=2)
    assert stage_bounds(balanced, 50304) == bounds
    assert balance_note(balanced, 50304) is None
    assert balance_note(usual, 50304) == (
        f"the slowest of 2 pipeline stages has {excesses[0]} more work than their mean, and all wait for it; with "
        f"pipe_partition_method: flops it has {excesses[1]} more"
    )


def test_norm_and_head_stay_together(config_of: Any) -> None:
    """A head that is more work than all blocks: they are a stage, norm and head the other."""
    from neoxlite.training.stages import stage_bounds

    cfg = config_of(2, pipe_parallel_size=2, pipe_partition_method="flops")
    assert stage_bounds(cfg, 100_000) == [0, 6, 8]


def test_a_run_in_stages_of_equal_work(train: Train) -> None:
    """Three of four blocks on the first stage, for the head is as much as one; the curve is that of one process."""
    size, keys = layout("pp2", 1)
    more = {"num_layers": 4}
    got = train(size, **keys, **more, train_iters=4, pipe_partition_method="flops")
    np.testing.assert_allclose(got.losses, single_process(train, 4, more).losses, rtol=1e-5, atol=0)
