"""Checkpoints that GPT-NeoX wrote: read whatever the layout, and gone on with to its own losses."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from neoxlite.convert.from_neox import convert
from tests.neoxlite.convert.samples import neox_config

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoint"
DATA = json.loads((GOLDEN / "checkpoint.json").read_text())["checkpoints"]
NAMES = sorted(DATA)


def write_config(path: Path, name: str, **changes: Any) -> Path:
    """Write the configuration of a golden checkpoint."""
    path.write_text(yaml.safe_dump(neox_config(DATA[name]["config"]) | changes))
    return path


def losses_of(ranks: Any, cfg: Any, folder: Path, rows: list[list[int]], padded: int) -> list[float]:
    """Resume from ``folder`` and return the losses of the next three steps on ``rows``."""
    from neoxlite.model.spec import ModelSpec
    from neoxlite.optim.schedule import Schedule
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.parallel.topology import Grid, create_topology
    from neoxlite.training.create import create_engine
    from neoxlite.training.evaluation import mean_over_replicas
    from neoxlite.training.resume import resume

    warnings.simplefilter("ignore")  # of DeepSpeed; in a forked child, for its life only
    device = torch.device("cpu")
    join_world(ranks, device)
    grid = Grid(max(1, cfg.pipe_parallel_size), cfg.data_parallel_size, cfg.model_parallel_size)
    topology = create_topology(grid, ranks.rank)
    engine = create_engine(cfg, ModelSpec.from_config(cfg, padded), topology, device, None)
    resumed = resume(folder, cfg, engine, Schedule.from_config(cfg), padded, lambda line: None)
    assert resumed.position.iteration == 3
    assert resumed.position.consumed_samples == 6
    micro = cfg.train_micro_batch_size_per_gpu
    losses = []
    for iteration in range(3, 6):
        first = 2 * iteration + topology.data_rank * micro
        engine.set_lr(resumed.schedule.lr(iteration))
        step = engine.train_step([np.array(rows[first : first + micro])], iteration + 1)
        losses.append(float(mean_over_replicas(step.loss.reshape(1), topology)[0]))
    leave_world()
    return losses


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on_with_gpt_neox_s_own_losses(name: str, world: Any, tmp_path: Path) -> None:
    """The three real checkpoints give the recorded losses of steps 3 to 5: weights, moments, step and schedule."""
    from neoxlite.config import load_config

    config = write_config(tmp_path / "run.yml", name)
    done = convert(GOLDEN / name, tmp_path / "続き", [str(config)])
    cfg = load_config(config)
    losses = world.run(1, losses_of, cfg, done.folder, DATA[name]["tokens"], 32)[0]
    assert losses == pytest.approx(DATA[name]["loss_steps_3_5_when_continued"], abs=2e-5)


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "layout",
    [
        {"model_parallel_size": 2},
        {"pipe_parallel_size": 2, "zero_optimization": {"stage": 1}},
        {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}},
    ],
    ids=["tp2", "pp2", "dp2-zero2"],
)
def test_training_goes_on_at_another_layout(name: str, layout: dict[str, Any], world: Any, tmp_path: Path) -> None:
    """The same losses on two ranks, which the checkpoint was not written on."""
    from neoxlite.config import load_config

    done = convert(GOLDEN / name, tmp_path / "out", [str(write_config(tmp_path / "was.yml", name))])
    cfg = load_config(write_config(tmp_path / "run.yml", name, **layout), world_size=2)
    losses = world.run(2, losses_of, cfg, done.folder, DATA[name]["tokens"], 32)[0]
    assert losses == pytest.approx(DATA[name]["loss_steps_3_5_when_continued"], abs=2e-5)
