"""fp32 master weights begin with what the files say, where that is more exact than the model's own precision."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.neoxlite.convert.samples import BASE


def _masters(ranks: Any, cfg: Any, folder: Path) -> dict[str, list[tuple[int, torch.Tensor]]]:
    """Load weights alone and return the stretches of master weights on this rank, by parameter."""
    from neoxlite.checkpoint.optimizer_state import MASTER, OptimizerState
    from neoxlite.checkpoint.source import open_source
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.parallel.topology import Grid, create_topology
    from neoxlite.training.create import create_engine

    warnings.simplefilter("ignore")  # of DeepSpeed; in a forked child, for its life only
    join_world(ranks, torch.device("cpu"))
    topology = create_topology(Grid(1, cfg.data_parallel_size, cfg.model_parallel_size), ranks.rank)
    engine = create_engine(cfg, ModelSpec.from_config(cfg, 512), topology, torch.device("cpu"), None)
    source = open_source(folder, cfg)
    source.load_weights(engine)
    source.load_master_weights(engine)
    found: dict[str, list[tuple[int, torch.Tensor]]] = {}
    for fragment in OptimizerState(engine).fragments():
        found.setdefault(fragment.name, []).append((fragment.start, fragment.tensors[MASTER].clone()))
    leave_world()
    return found


@pytest.mark.ci
@pytest.mark.parametrize(("dtype", "stage"), [("float16", 1), ("float32", 3)])
def test_bf16_training_keeps_the_digits_of_the_files(
    dtype: str, stage: int, checkpoint: Callable[..., Path], world: Any, tmp_path: Path
) -> None:
    """Weights of fp16 (as from Hugging Face) and of fp32, on two ranks: no digit is lost to bfloat16."""
    from neoxlite.config import load_config

    folder = checkpoint(dtype=dtype) / "global_step7"
    path = tmp_path / "run.yml"
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
    path.write_text(yaml.safe_dump({**BASE, "precision": "bfloat16", "zero_optimization": zero}))
    ranks = world.run(2, _masters, load_config(path, world_size=2), folder)
    for file in folder.glob("layer_*.safetensors"):
        for name, weight in load_file(file).items():
            key = f"{int(file.stem.removeprefix('layer_'))}.{name}"
            stretches = sorted((part for rank in ranks for part in rank.get(key, [])), key=lambda part: part[0])
            got = torch.cat([elements for _, elements in stretches])
            assert torch.equal(got, weight.float().view(-1)), key
            assert weight.to(torch.bfloat16).float().ne(weight.float()).any()
