"""What the engine's rules keep away: DeepSpeed computes these combinations without a word, and wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from forked_worlds import read_metrics, train_rank
from layouts import layout, single_process


def _steps_counted(ranks: Any, stage: int) -> float:
    import deepspeed

    from neoxlite.parallel.distributed import join_world, leave_world

    join_world(ranks, torch.device("cpu"))
    model = torch.nn.Linear(4, 4)
    config = {
        "train_batch_size": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    engine.backward(engine(torch.ones(1, 4, dtype=torch.bfloat16)).float().sum())
    engine.step()
    counts = {float(state["step"]) for state in optimizer.state.values()}
    leave_world()
    return counts.pop()


@pytest.mark.parametrize(("stage", "steps"), [(0, 2.0), (1, 1.0)])
def test_bf16_without_zero_takes_a_step_too_many(stage: int, steps: float, world: Any) -> None:
    """After one batch DeepSpeed's bf16 optimizer without ZeRO has counted two steps, with stage 1 one."""
    assert world.run(1, _steps_counted, stage) == [steps]


def _train_as_asked(ranks: Any, cfg: Any, files: Any) -> None:
    """Train without the rule that raises stage 0 to 1."""
    import deepspeed.runtime.engine

    import neoxlite.training.engine as own
    from neoxlite.training import run

    real = own.deepspeed_config
    own.deepspeed_config = lambda cfg, **options: {**real(cfg, **options), "gradient_clipping": cfg.gradient_clipping}
    # Without ZeRO DeepSpeed tells no norm in fp32.
    deepspeed.runtime.engine.DeepSpeedEngine.get_global_grad_norm = lambda self: 0.0
    object.__setattr__(cfg, "zero_stage", 0)
    run(cfg, ranks=ranks, files=files)


def test_a_pipeline_without_zero_clips_by_the_wrong_norm(
    world: Any, train: Any, config_of: Any, text_data: str, tmp_path: Any
) -> None:
    """On stage 0 two pipeline stages leave the single process's curve by more than 1e-3 under clipping."""
    from neoxlite.training.environment import RunFiles

    size, keys = layout("pp2", 0)
    cfg = config_of(size, data_path=text_data, train_iters=20, **keys)
    assert cfg.zero_stage == 1
    files = RunFiles(metrics=tmp_path / "metrics.jsonl")
    world.run(size, _train_as_asked, cfg, files)
    losses = np.array([entry["loss"] for entry in read_metrics(files.metrics) if "event" not in entry])
    assert np.abs(losses - single_process(train, 20, {}).losses).max() > 1e-3


@pytest.mark.ci
def test_selective_recomputation_under_stage_3_is_wrong(
    world: Any, train: Any, config_of: Any, text_data: str, tmp_path: Any
) -> None:
    """Its gradient norm leaves the single process's by more than 1e-4, so that the pair is refused."""
    from neoxlite.config import ConfigError
    from neoxlite.training.environment import RunFiles

    size, keys = layout("dp1", 3)
    with pytest.raises(ConfigError, match="selective does not go with ZeRO stage 3") as caught:
        config_of(size, **{**keys, "checkpoint_activations": True}, recompute_granularity="selective")
    assert "zero_optimization.stage: 2" in str(caught.value.hint)
    cfg = config_of(size, data_path=text_data, train_iters=20, **{**keys, "checkpoint_activations": True})
    object.__setattr__(cfg, "recompute_granularity", "selective")
    files = RunFiles(metrics=tmp_path / "metrics.jsonl")
    world.run(size, train_rank, cfg, files, {})
    norms = np.array([entry["grad_norm"] for entry in read_metrics(files.metrics) if "event" not in entry])
    assert np.abs(norms / single_process(train, 20, {}).grad_norms - 1).max() > 1e-4
