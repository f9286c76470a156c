"""The optimizer state of checkpoints that DeepSpeed itself wrote, in place and converted."""

from __future__ import annotations

import json
import random
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
from tests.neoxlite.convert.neox_samples import DATA, GOLDEN, saved_by_deepspeed, write_config
from tests.neoxlite.convert.samples import neox_config


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
    (ours / "manifest.json").write_text(json.dumps({**own_manifest, "training": manifest["training"], "crc32": None}))
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


def with_scaler(folder: Path, scaler: Any) -> Path:
    """Return a copy of a real checkpoint under ZeRO that has another pickled loss scaler."""
    folder = Path(shutil.copytree(GOLDEN / "pipe_tied_zero1", folder)) / "global_step3"
    path = folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    content = torch.load(path, weights_only=False)
    content["optimizer_state_dict"]["loss_scaler"] = scaler
    torch.save(content, path)
    return folder


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_scale_goes_on_as_deepspeed_s(
    seed: int, deepspeed_ready: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp16 the scale, the good steps behind the last overflow and the hysteresis are those of the pickled scaler."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

    from neoxlite.checkpoint.source import open_source
    from neoxlite.config import load_config
    from neoxlite.optim.loss_scale import LossScale

    monkeypatch.setattr("deepspeed.comm.get_rank", lambda: 0)
    dice = random.Random(seed)
    theirs = DynamicLossScaler(2.0**20, 4, 1.0, 2, False)
    for _ in range(dice.randint(0, 20)):
        theirs.update_scale(dice.random() < 0.3)
    folder = with_scaler(tmp_path / "neox", theirs)
    block = {"enabled": True, "loss_scale_window": 4, "hysteresis": 2}
    cfg = load_config(write_config(tmp_path / "run.yml", "pipe_tied_zero1", fp16=block))
    source = open_source(folder, cfg)
    ours = LossScale.from_block(block)
    ours.restore(source.training["loss_scale"])
    assert not any("loss scale" in note for note in source.notes)
    for _ in range(30):
        overflow = dice.random() < 0.2
        theirs.update_scale(overflow)
        ours.update_scale(overflow)
        ours.settle()
        assert ours.scale == theirs.cur_scale


def test_where_there_is_no_loss_scale(deepspeed_ready: None, tmp_path: Path) -> None:
    """A run in fp32 takes none, a static one is the configuration's, which the log says, and nonsense is damage."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler

    from neoxlite.checkpoint.source import open_source
    from neoxlite.config import load_config

    fp16 = load_config(write_config(tmp_path / "fp16.yml", "pipe_tied_zero1", fp16={"enabled": True}))
    fp32 = load_config(write_config(tmp_path / "fp32.yml", "pipe_tied_zero1"))
    source = open_source(with_scaler(tmp_path / "static", LossScaler(128.0)), fp16)
    assert source.training["loss_scale"] is None
    assert source.notes[0].endswith("its random states and loss scale are not taken")
    damaged = with_scaler(tmp_path / "damaged", DynamicLossScaler(float("nan"), 1000, 1.0, 2, False))
    with pytest.raises(CheckpointError, match="is damaged: its loss scale is 'nan'"):
        _ = open_source(damaged, fp16).training
    assert open_source(damaged, fp32).training["loss_scale"] is None
