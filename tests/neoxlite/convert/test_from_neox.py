"""Checkpoints that GPT-NeoX wrote: read whatever the layout, and gone on with to its own losses."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from neoxlite.convert.from_neox import convert
from neoxlite.errors import CheckpointError
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


@pytest.mark.parametrize(
    ("name", "resumed"),
    [
        *(pytest.param(name, {}, marks=() if name == "pipe" else pytest.mark.ci) for name in NAMES),
        pytest.param("pipe_tied_zero1", {"precision": "bfloat16"}, marks=pytest.mark.ci),
    ],
)
def test_it_is_read_where_it_lies(name: str, resumed: dict[str, Any], world: Any, tmp_path: Path) -> None:
    """The same losses without a converted copy; in bf16 from the fp32 master weights, near them."""
    from neoxlite.config import load_config

    precise = {"zero_optimization": {"stage": 1}} if resumed else {}
    cfg = load_config(write_config(tmp_path / "run.yml", name, **resumed, **precise))
    losses = world.run(1, losses_of, cfg, GOLDEN / name / "global_step3", DATA[name]["tokens"], 32)[0]
    near = 2e-2 if resumed else 2e-5
    assert losses == pytest.approx(DATA[name]["loss_steps_3_5_when_continued"], abs=near)


LAYOUTS: dict[str, dict[str, Any]] = {
    "tp2": {"model_parallel_size": 2},
    "pp2": {"pipe_parallel_size": 2, "zero_optimization": {"stage": 1}},
    "dp2-zero2": {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}},
    "dp2-zero3": {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}},
}


@pytest.mark.parametrize(
    ("name", "layout", "converted"),
    [
        # Each checkpoint and each layout once for CI.
        pytest.param(
            name, layout, converted, marks=pytest.mark.ci if place == turn and not converted else pytest.mark.full
        )
        for place, name in enumerate(NAMES)
        for turn, layout in enumerate(LAYOUTS)
        for converted in (False, True)
    ],
)
def test_training_goes_on_at_another_layout(
    name: str, layout: str, converted: bool, world: Any, tmp_path: Path
) -> None:
    """The same losses on two ranks, which the checkpoint was not written on, in place and converted."""
    from neoxlite.config import load_config

    folder = GOLDEN / name / "global_step3"
    if converted:
        folder = convert(GOLDEN / name, tmp_path / "out", [str(write_config(tmp_path / "was.yml", name))]).folder
    cfg = load_config(write_config(tmp_path / "run.yml", name, **LAYOUTS[layout]), world_size=2)
    losses = world.run(2, losses_of, cfg, folder, DATA[name]["tokens"], 32)[0]
    assert losses == pytest.approx(DATA[name]["loss_steps_3_5_when_continued"], abs=2e-5)


def written_as_upstream(own: Path, root: Path, consumed: int) -> None:
    """Write the weights of a checkpoint of ours as GPT-NeoX's layer files, without optimizer."""
    from safetensors.torch import load_file

    folder = root / "global_step4"
    folder.mkdir(parents=True)
    for path in own.glob("layer_*.safetensors"):
        torch.save(load_file(path), folder / f"{path.stem}-model_00-model_states.pt")
    state = {"module": None, "optimizer": None, "iteration": 4, "skipped_steps": 0, "lr_scheduler": None}
    state |= {"args": {"num_layers": 3, "padded_vocab_size": 512}, "ds_config": {"train_batch_size": consumed // 4}}
    torch.save(state, folder / "mp_rank_00_model_states.pt")
    (root / "latest").write_text("global_step4")


@pytest.mark.ci
def test_load_takes_a_folder_of_gpt_neox(train: Any, tmp_path: Path) -> None:
    """A whole run with ``load`` at it goes on at its iteration and place in the data, and saves checkpoints of ours.

    The losses are those of the run that goes on from the same weights in our own format.
    """
    first = train(1, save=str(tmp_path / "own"), checkpoint_factor=4, train_iters=4, lr_decay_iters=10)
    consumed = json.loads((tmp_path / "own" / "global_step4" / "manifest.json").read_text())["training"]
    written_as_upstream(tmp_path / "own" / "global_step4", tmp_path / "neox", consumed["consumed_samples"])
    where = {"no_load_optim": True, "lr_decay_iters": 10}
    expected = train(1, load=str(tmp_path / "own"), **where)
    got = train(1, load=str(tmp_path / "neox"), save=str(tmp_path / "new"), checkpoint_factor=5, **where)
    assert [entry["iteration"] for entry in got.metrics] == list(range(5, 11))
    assert got.losses == expected.losses
    assert first.losses[0] > got.losses[-1]
    assert (tmp_path / "new" / "latest").read_text() == "global_step10"
    assert (tmp_path / "new" / "global_step10" / "manifest.json").is_file()


def test_what_cannot_be_gone_on_from_in_place_is_named(tmp_path: Path) -> None:
    """A changed byte, a cut file, no optimizer state, another configuration: before anything is trained."""
    from neoxlite.checkpoint.source import open_source, saved_place
    from neoxlite.config import load_config
    from neoxlite.parallel.topology import Topology

    cfg = load_config(write_config(tmp_path / "run.yml", "pipe"))
    folder = Path(shutil.copytree(GOLDEN / "pipe", tmp_path / "重み")) / "global_step3"
    assert saved_place(folder, cfg)["consumed_samples"] == 6
    open_source(folder, cfg).verify(Topology())
    layer = folder / "layer_03-model_00-model_states.pt"
    data = layer.read_bytes()
    place = data.index(torch.load(layer)["mlp.linear1.weight"].numpy().tobytes()[:64])
    layer.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(CheckpointError, match=rf"{layer} is damaged: .* has changed \(checksum\)"):
        open_source(folder, cfg).verify(Topology())
    layer.write_bytes(data[:-40])
    with pytest.raises(CheckpointError, match=f"{layer} is damaged"):
        open_source(folder, cfg)
    layer.write_bytes(data)
    state = torch.load(folder / "mp_rank_00_model_states.pt", weights_only=False)
    torch.save({**state, "optimizer": None}, folder / "mp_rank_00_model_states.pt")
    with pytest.raises(CheckpointError, match="has no optimizer state of Adam") as caught:
        open_source(folder, cfg).load_optimizer(None)
    assert "no_load_optim: true" in str(caught.value.hint)
    other = load_config(write_config(tmp_path / "run.yml", "pipe", num_layers=3))
    with pytest.raises(CheckpointError, match="was trained with num_layers: 2, the configuration has 3"):
        open_source(folder, other)


MODEL = Path(__file__).parents[2] / "golden" / "model"
VARIANTS = json.loads((MODEL / "model.json").read_text())["variants"]


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
        state = {"module": None, "optimizer": None, "iteration": 5, "dp_world_size": 1, "skipped_steps": 0}
        state |= {"args": {**args, "padded_vocab_size": 128, "model_parallel_size": ranks}, "client_set": {1, 2}}
        torch.save(state, folder / f"mp_rank_{rank:02d}_model_states.pt")
    (folder.parent / "latest").write_text(folder.name)


@pytest.mark.parametrize(
    ("name", "old_names"),
    [
        ("rotary25", True),
        ("gptj", False),
        ("gptj_tied", True),
        ("gptj_tied_embed", False),
        ("llama_gqa2", False),
        ("learned", False),
    ],
)
def test_slices_of_two_ranks_become_gpt_neox_s_logits(name: str, old_names: bool, tmp_path: Path) -> None:
    """Merged rightly: column, row, vocabulary, interleaved qkv, gated halves, summed biases; old and new names."""
    from neoxlite.checkpoint.load import load_weights
    from neoxlite.config import load_config
    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.spec import ModelSpec

    variant = VARIANTS[name]
    write_sliced(tmp_path / "neox" / "global_step5", variant, 2, old_names=old_names)
    config = tmp_path / "model.yml"
    keys = {**variant["config"], "train_micro_batch_size_per_gpu": 1, "train_iters": 1}
    config.write_text(yaml.safe_dump(keys | {"tokenizer_type": "CharLevelTokenizer"}))
    done = convert(tmp_path / "neox", tmp_path / "out", [str(config)], with_optimizer=False)
    assert (done.layout, done.iteration) == ("dp 1 x pp 1 x tp 2", 5)
    model = GPTModel(ModelSpec.from_config(load_config(config), 128))
    load_weights(done.folder, model)
    tokens = torch.from_numpy(np.load(MODEL / "tokens.npy").astype(np.int64))[:, :-1]
    with torch.no_grad():
        logits = model(tokens).numpy()
    np.testing.assert_allclose(logits, np.load(MODEL / f"{name}.npz")["logits"], atol=5e-5, rtol=0)


class Hostile:
    """Pickles as a call of a function of Python's standard library."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_a_pickle_that_would_run_a_program_is_refused_unread(tmp_path: Path) -> None:
    """In any file of a checkpoint a call of something else than data is refused by name, and is not made."""
    config = write_config(tmp_path / "run.yml", "pipe")
    for name in ("mp_rank_00_model_states.pt", "layer_02-model_00-model_states.pt"):
        shutil.rmtree(tmp_path / "neox", ignore_errors=True)
        shutil.copytree(GOLDEN / "pipe", tmp_path / "neox")
        torch.save(
            {"input_layernorm.weight": Hostile(tmp_path / "was here")}, tmp_path / "neox" / "global_step3" / name
        )
        with pytest.raises(CheckpointError, match=f"{name} holds more than tensors and plain data: posix.mkdir"):
            convert(tmp_path / "neox", tmp_path / "out", [str(config)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["neox", "run.yml"]


def test_damage_and_wrong_configurations_are_named(tmp_path: Path) -> None:
    """A cut file, a missing one, another configuration, no configuration: one line each, and nothing is written."""
    config = write_config(tmp_path / "run.yml", "pipe")
    source = Path(shutil.copytree(GOLDEN / "pipe", tmp_path / "重み")) / "global_step3"

    def refused(told: str, *configs: Path, iteration: int | None = None) -> None:
        with pytest.raises(CheckpointError) as caught:
            convert(source.parent, tmp_path / "out", [str(one) for one in configs], iteration=iteration)
        assert told in caught.value.message
        assert not (tmp_path / "out").exists()

    other = {"num_layers": 3, "norm": "rmsnorm", "no_weight_tying": False, "hidden_size": 32}
    for key, value in other.items():
        wrong = write_config(tmp_path / "wrong.yml", "pipe", **{key: value})
        told = {"norm": "has no input_layernorm.scale", "no_weight_tying": "has final_linear.weight"}
        refused(told.get(key, f"was trained with {key}: "), wrong)
    refused("its own configuration: ")
    refused("has no checkpoint of GPT-NeoX global_step9", config, iteration=9)
    layer = source / "layer_03-model_00-model_states.pt"
    data = layer.read_bytes()
    for cut in (0, 10, len(data) // 2, len(data) - 30):
        layer.write_bytes(data[:cut])
        refused(f"{layer} is damaged: ", config)
    layer.unlink()
    refused("layer 3 has no input_layernorm.weight", config)
    layer.write_bytes(data)
    state = torch.load(source / "mp_rank_00_model_states.pt", weights_only=False)
    torch.save({**state, "iteration": "three"}, source / "mp_rank_00_model_states.pt")
    refused("iteration is 'three'", config)
    torch.save({**state, "optimizer": None}, source / "mp_rank_00_model_states.pt")
    refused("has no optimizer state of Adam", config)
    torch.save([1, 2], source / "mp_rank_00_model_states.pt")
    refused("it holds no table", config)
    (source / "mp_rank_00_model_states.pt").unlink()
    refused("has no checkpoint of GPT-NeoX", config)


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


def filled_otherwise(ranks: Any, cfg: Any, in_place: Path, converted: Path) -> list[str]:
    """Return what an engine has otherwise from DeepSpeed's files in place than from the converted ones."""
    from neoxlite.checkpoint.optimizer_state import OptimizerState
    from neoxlite.checkpoint.source import open_source
    from neoxlite.model.naming import layer_parameters
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.parallel.topology import Grid, create_topology
    from neoxlite.training.create import create_engine

    warnings.simplefilter("ignore")
    join_world(ranks, torch.device("cpu"))
    topology = create_topology(Grid(1, cfg.data_parallel_size, cfg.model_parallel_size), ranks.rank)
    engine = create_engine(cfg, ModelSpec.from_config(cfg, 64), topology, torch.device("cpu"), None)
    found: list[dict[str, torch.Tensor]] = []
    for folder in (in_place, converted):
        source = open_source(folder, cfg)
        source.verify(topology)
        source.load_weights(engine)
        source.load_optimizer(engine)
        state = OptimizerState(engine)
        assert state.step == 2
        tensors = {name: parameter.detach().clone() for name, parameter in layer_parameters(engine.module)}
        for fragment in state.fragments():
            tensors |= {f"{kind} {fragment.name}": tensor.clone() for kind, tensor in fragment.tensors.items()}
        found.append(tensors)
        for tensor in tensors.values():
            assert tensor.abs().sum() > 0
        for parameter in engine.module.parameters():
            parameter.data.zero_()
    leave_world()
    assert found[0].keys() == found[1].keys()
    return [name for name, tensor in found[0].items() if not torch.equal(tensor, found[1][name])]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("pp", "tp", "dp", "keys"),
    [
        (2, 2, 1, {"precision": "bfloat16"}),
        (2, 1, 2, {"no_weight_tying": False}),
        (2, 2, 1, {"num_kv_heads": 2, "activation": "swiglu", "mlp_multiple_of": 8, "norm": "rmsnorm"}),
    ],
    ids=["pp2-tp2-bf16", "pp2-dp2-tied", "pp2-tp2-gqa"],
)
def test_shards_of_deepspeed_give_the_whole_optimizer_state(
    pp: int, tp: int, dp: int, keys: dict[str, Any], world: Any, tmp_path: Path
) -> None:
    """Files that DeepSpeed itself wrote on several ranks: weights, master weights and moments as our save has them."""
    from neoxlite.config import load_config
    from neoxlite.convert.own import OwnCheckpoint

    config = tmp_path / "run.yml"
    config.write_text(
        yaml.safe_dump(
            neox_config(DATA["pipe"]["config"])
            | {"hidden_size": 32, "num_attention_heads": 4, "pipe_parallel_size": pp, "model_parallel_size": tp}
            | {"zero_optimization": {"stage": 1}, "pipe_partition_method": "uniform"}
            | keys
        )
    )
    cfg = load_config(config, world_size=pp * tp * dp)
    rows = np.random.default_rng(1).integers(0, 64, (2, dp, 2, 9))
    world.run(pp * tp * dp, saved_by_deepspeed, cfg, tmp_path / "ds", tmp_path / "own", rows)
    done = convert(tmp_path / "ds", tmp_path / "out", [str(config)])
    assert done.layout == f"dp {dp} x pp {pp} x tp {tp}"
    converted = OwnCheckpoint.open(done.folder)
    assert converted.training["optimizer_step"] == 2
    ours = tmp_path / "own" / "global_step2"
    manifest = json.loads((done.folder / "manifest.json").read_text())
    own_manifest = json.loads((ours / "manifest.json").read_text())
    (ours / "manifest.json").write_text(json.dumps({**own_manifest, "training": manifest["training"]}))
    (ours / "config.yml").write_bytes((done.folder / "config.yml").read_bytes())
    expected = OwnCheckpoint.open(ours)
    assert list(converted.weights) == list(expected.weights)
    for name, weight in expected.weights.items():
        assert torch.equal(converted.weights[name].whole(), weight.whole()), name
    there, here = expected.optimizer_state(), converted.optimizer_state()
    assert set(here) == set(there) == set(expected.weights)
    for name, kinds in there.items():
        assert set(here[name]) == set(kinds)
        for kind, weight in kinds.items():
            assert torch.equal(here[name][kind].whole(), weight.whole()), (name, kind)
    layout = {"pipe_parallel_size": 1, "model_parallel_size": 2, "zero_optimization": {"stage": 1}}
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | layout))
    other = load_config(config, world_size=2)
    assert world.run(2, filled_otherwise, other, tmp_path / "ds" / "global_step2", done.folder) == [[], []]


@pytest.mark.ci
def test_master_weights_of_summed_biases_are_their_sum(world: Any, tmp_path: Path) -> None:
    """Under gpt_j_residual each of two slices has a bias of its own, and the sum counts: of the fp32 masters too."""
    from neoxlite.checkpoint.optimizer_state import MASTER
    from neoxlite.config import load_config
    from neoxlite.convert.neox_model import NeoxModel
    from neoxlite.convert.upstream import Upstream

    keys = {"gpt_j_residual": True, "precision": "bfloat16", "pipe_parallel_size": 2, "model_parallel_size": 2}
    config = tmp_path / "run.yml"
    keys |= {"zero_optimization": {"stage": 1}, "pipe_partition_method": "uniform"}
    config.write_text(yaml.safe_dump(neox_config(DATA["pipe"]["config"]) | keys))
    cfg = load_config(config, world_size=4)
    rows = np.random.default_rng(1).integers(0, 64, (2, 1, 2, 9))
    world.run(4, saved_by_deepspeed, cfg, tmp_path / "ds", tmp_path / "own", rows)
    model = NeoxModel.of(Upstream.open(tmp_path / "ds" / "global_step2"), cfg)
    state, _ = model.optimizer()
    for name, weight in model.weights.items():
        found = state[name][MASTER].whole()
        assert torch.equal(found.to(torch.bfloat16), weight.whole()), name
        assert found.abs().sum() > 0
