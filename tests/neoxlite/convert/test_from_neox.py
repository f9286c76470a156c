"""Checkpoints that GPT-NeoX wrote become ones of ours, whatever the layout; what is damaged or hostile is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from neoxlite.convert.from_neox import convert
from neoxlite.errors import CheckpointError
from tests.neoxlite.convert.neox_samples import (
    DATA,
    GOLDEN,
    MODEL,
    NAMES,
    VARIANTS,
    losses_of,
    write_config,
    write_sliced,
)


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
