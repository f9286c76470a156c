"""Pipeline stages: what each holds, what it says, and validation through them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layouts import layout

from neoxlite.config import load_config
from neoxlite.errors import ConfigError
from neoxlite.parallel.topology import Grid, Topology
from neoxlite.training.stages import stage_bounds, stage_line

Function = Callable[..., Any]


def shipped(name: str, *, world_size: int, **overrides: Any) -> Any:
    """Resolve a shipped configuration."""
    path = str(resources.files("neoxlite") / "configs" / f"{name}.yml")
    return load_config(path, overrides=overrides, world_size=world_size)


def test_the_2_7b_model_says_layers_37() -> None:
    """One stage has [0, 37) and 2,775,208,960 parameters; of two, the first has the 1,387,601,920 of GPT-NeoX's log."""
    cfg = shipped("2-7B", world_size=8)
    assert stage_line(cfg, 50304, Topology(Grid(data=8))) == (
        "RANK=0 STAGE=0 LAYERS=37 [0, 37) STAGE_PARAMS=2775208960 (2775.209M) "
        "TOTAL_PARAMS=2775208960 (2775.209M) UNIQUE_PARAMS=2775208960 (2775.209M)"
    )
    cfg = shipped("2-7B", world_size=8, pipe_parallel_size=2)
    first, second = (stage_line(cfg, 50304, Topology(Grid(pipeline=2, data=4), rank)) for rank in (0, 4))
    assert first.startswith("RANK=0 STAGE=0 LAYERS=18 [0, 18) STAGE_PARAMS=1387601920 (1387.602M) ")
    assert second.startswith("RANK=4 STAGE=1 LAYERS=19 [18, 37) STAGE_PARAMS=1387607040 (1387.607M) ")


def test_a_stage_without_a_block_is_refused(config_of: Function) -> None:
    """Five to eight stages for three blocks leave the first the embedding alone; the nearest that works is named."""
    with pytest.raises(ConfigError, match=r"pipe_parallel_size: 8 leaves stage 0 .* without a block") as caught:
        stage_bounds(config_of(8, pipe_parallel_size=8))
    assert caught.value.hint == "the nearest that works: pipe_parallel_size: 4"


def _held(ranks: Any, cfg: Any) -> list[str]:
    import torch

    from neoxlite.model.naming import is_copy, layer_parameters
    from neoxlite.model.pipeline import PipelineStage
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.parallel.topology import create_topology

    join_world(ranks, torch.device("cpu"))
    topology = create_topology(Grid(pipeline=2), ranks.rank)
    stage = PipelineStage(ModelSpec.from_config(cfg, 64), topology, stage_bounds(cfg, 64))
    held = [name + " (copy)" * is_copy(parameter) for name, parameter in layer_parameters(stage)]
    torch.distributed.barrier()  # rank 0 keeps the store that the other may still be reading
    leave_world()
    return held


@pytest.mark.parametrize("method", ["type:transformer|mlp", "uniform", "parameters"])
def test_a_stage_holds_its_layers_only(method: str, world: Any, config_of: Function) -> None:
    """The names on the two ranks are those of their layers; a tied matrix is the first's, and a copy on the last."""
    cfg = config_of(2, pipe_parallel_size=2, pipe_partition_method=method, no_weight_tying=False, pos_emb="learned")
    cut = stage_bounds(cfg, 64)[1]
    first, last = world.run(2, _held, cfg)
    assert {int(name.split(".")[0]) for name in first} == set(range(cut)) - {1}
    assert {int(name.split(".")[0]) for name in last} == set(range(cut, 7)) - {5} | {0}
    assert "0.position_embeddings.weight" in first
    assert [name for name in last if name.startswith("0.")] == ["0.word_embeddings.weight (copy)"]
    assert not any("copy" in name for name in first)


def test_one_process_evaluates_and_generates_from_stages_and_slices(
    train: Callable[..., Any],
    command: Callable[..., Any],
    config_of: Callable[..., Any],
    text_data: str,
    tmp_path: Path,
) -> None:
    """A checkpoint of two stages of two slices, with its own configuration, has the loss of one process's."""
    losses = []
    for name in ("tp2 x pp2", "dp1"):
        size, keys = layout(name, 1)
        root = tmp_path / name
        train(size, **keys, train_iters=3, save=str(root), checkpoint_factor=3)
        config_of(size, **keys, train_iters=3, data_path=text_data)
        code, out, err = command("evaluate", str(tmp_path / "tiny.yml"), "--load", str(root), "--json")
        assert code == 0, err
        losses.append(json.loads(out)["splits"]["valid"]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    code, out, err = command("generate", "--load", str(tmp_path / "tp2 x pp2"), "--prompt", "def", "--max-new-tokens=2")
    assert code == 0, err
    assert out.startswith("def")


def test_validation_through_stages_gives_the_single_process_s_loss(train: Function, tmp_path: Path) -> None:
    """During and after training, over the same held-out batches, also with more of them than the accumulation."""
    evaluation = {"eval_interval": 4, "eval_iters": 3}
    runs = []
    for name in ("dp1", "pp2"):
        size, keys = layout(name, 1)
        # The same micro-batches too: a mean of means weighs them alike.
        keys |= {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}
        runs.append(train(size, **keys, **evaluation))
    losses = [[event["loss"] for event in run.events] for run in runs]
    assert len(losses[0]) == 4
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
