"""Checkpoints of GPT-NeoX: the real ones of the golden data, and ones that are written here as it writes them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from tests.neoxlite.convert.samples import neox_config

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoint"
DATA = json.loads((GOLDEN / "checkpoint.json").read_text())["checkpoints"]
NAMES = sorted(DATA)
MODEL = Path(__file__).parents[2] / "golden" / "model"
VARIANTS = json.loads((MODEL / "model.json").read_text())["variants"]


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


def megatron_slices(name: str, weight: np.ndarray, config: dict[str, Any], ranks: int, rng: Any) -> list[np.ndarray]:
    """Slice a parameter of GPT-NeoX as its layers do under tensor parallelism (megatron/mpu/layers.py).

    Column-parallel matrices (qkv by heads, or by queries, keys and values each with grouped queries; the MLP's first
    one, whose halves a gated MLP slices each) by rows, row-parallel ones by columns, the vocabulary by rows. What is on
    every rank is there whole; the output biases under gpt_j_residual count by their sum, so each rank has another one.
    """
    parts = [weight]
    if "query_key_value" in name and "num_kv_heads" in config:
        heads, kv, size = config["num_attention_heads"], config["num_kv_heads"], config["hidden_size"]
        head = size // heads
        parts = np.split(weight, [heads * head, (heads + kv) * head])
    elif "linear1" in name and config["activation"] in ("swiglu", "geglu"):
        parts = np.split(weight, 2)
    if any(word in name for word in ("query_key_value", "linear1", "word_embeddings", "final_linear")):
        return [np.concatenate([np.split(one, ranks)[rank] for one in parts]) for rank in range(ranks)]
    if name.endswith(("attention.dense.weight", "linear2.weight")):
        return np.split(weight, ranks, axis=1)
    if config["gpt_j_residual"] and name.endswith(("attention.dense.bias", "linear2.bias")):
        others = [rng.standard_normal(weight.shape).astype(np.float32) for _ in range(ranks - 1)]
        return [*others, weight - sum(others)]
    return [weight] * ranks


def write_sliced(folder: Path, variant: dict[str, Any], ranks: int, *, old_names: bool = False) -> None:
    """Write the layer and mp_rank files of a golden model as ``ranks`` tensor-parallel ranks would have."""
    arrays, rng = np.load(MODEL / "weights.npz"), np.random.default_rng(0)
    layers: dict[tuple[int, int], dict[str, torch.Tensor]] = {}
    for name, key in variant["weights"].items():
        layer, _, local = name.replace("tied_modules.embed", "0").partition(".")
        if old_names:
            local = local.replace("linear1", "dense_h_to_4h").replace("linear2", "dense_4h_to_h")
        slices = megatron_slices(name, arrays[key].astype(np.float32), variant["config"], ranks, rng)
        for rank, one in enumerate(slices):
            layers.setdefault((int(layer), rank), {})[local] = torch.from_numpy(np.ascontiguousarray(one))
    folder.mkdir(parents=True)
    for (layer, rank), content in layers.items():
        if old_names and 2 <= layer < 5:
            content["attention.rotary_emb.inv_freq"] = torch.zeros(8)
        torch.save(content, folder / f"layer_{layer:02d}-model_{rank:02d}-model_states.pt")
    args = {key: variant["config"][key] for key in ("num_layers", "hidden_size", "num_attention_heads")}
    for rank in range(ranks):
        state: dict[str, Any] = {
            "module": None,
            "optimizer": None,
            "iteration": 5,
            "dp_world_size": 1,
            "skipped_steps": 0,
        }
        state |= {"args": {**args, "padded_vocab_size": 128, "model_parallel_size": ranks}, "client_set": {1, 2}}
        torch.save(state, folder / f"mp_rank_{rank:02d}_model_states.pt")
    (folder.parent / "latest").write_text(folder.name)


def saved_by_deepspeed(ranks: Any, cfg: Any, folder: Path, own: Path, rows: Any) -> None:
    """Train two steps, then save with DeepSpeed's own method, as GPT-NeoX does, and with ours."""
    from neoxlite.checkpoint.save import Contents, save
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.parallel.topology import Grid, create_topology
    from neoxlite.training.create import create_engine

    warnings.simplefilter("ignore")
    join_world(ranks, torch.device("cpu"))
    grid = Grid(cfg.pipe_parallel_size, cfg.data_parallel_size, cfg.model_parallel_size)
    topology = create_topology(grid, ranks.rank)
    engine = create_engine(cfg, ModelSpec.from_config(cfg, 64), topology, torch.device("cpu"), None)
    for iteration in range(2):
        engine.set_lr(0.01)
        engine.train_step([rows[iteration, topology.data_rank]], iteration + 1)
    args = {"num_layers": cfg.num_layers, "padded_vocab_size": 64, "model_parallel_size": cfg.model_parallel_size}
    state = {"iteration": 2, "args": args, "lr_scheduler": None}
    engine.deepspeed.save_checkpoint(str(folder), tag="global_step2", client_state=state)
    save(own, engine, Contents({"iteration": 2}))
    leave_world()
