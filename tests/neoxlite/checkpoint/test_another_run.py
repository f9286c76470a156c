"""Checkpoints of another model, layout or schedule are refused by what differs."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file


@pytest.mark.parametrize("layers", [2, *(pytest.param(layers, marks=pytest.mark.full) for layers in (4, 5))])
def test_another_depth_is_named_as_such(layers: int, command: Any, copy: Path, config_of: Any, text_data: str) -> None:
    """Fewer and more blocks than the checkpoint's 3 are told as a number of layers, not as a file that is missing."""
    config_of(1, data_path=text_data, load=str(copy), finetune=True, num_layers=layers)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 2
    assert f"has 3 layers, this configuration {layers}" in err


def test_another_model_s_checkpoint_is_refused_with_the_parameter(
    command: Any, copy: Path, config_of: Any, text_data: str
) -> None:
    """The first key or parameter that does not fit is named with both values, also where finetune takes weights."""
    where = {"save": str(copy), "load": str(copy), "checkpoint_factor": 5}
    config_of(1, data_path=text_data, **where, hidden_size=64)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 2
    assert "hidden_size: 32 -> 64" in err
    assert "finetune" not in err
    config_of(1, data_path=text_data, load=str(copy), hidden_size=64, finetune=True)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 2
    assert "word_embeddings.weight has the shape [512, 32], this model's [512, 64]" in err
    config_of(1, data_path=text_data, **where, make_vocab_size_divisible_by=1000)
    assert "padded vocabulary of 512, this run 1000" in command("train", str(copy.parent / "tiny.yml"))[2]


def test_a_piece_of_optimizer_state_that_is_missing_is_named(
    command: Any, copy: Path, config_of: Any, text_data: str
) -> None:
    """A checkpoint written without some moments is not trained on as if they were zero."""
    folder = copy / "global_step10"
    path = next(folder.glob("optimizer_07-*.safetensors"))
    whole, tensors = path.read_bytes(), load_file(path)
    dropped = next(key for key in tensors if key.startswith("exp_avg/"))
    save_file({key: tensor for key, tensor in tensors.items() if key != dropped}, path)
    data = path.read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][path.name] = {"bytes": len(data), "crc32": zlib.crc32(data)}
    del manifest["crc32"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "optimizer_07-0009.safetensors").write_bytes(whole)  # in no manifest: not of this checkpoint
    config_of(1, data_path=text_data, save=str(copy), load=str(copy), checkpoint_factor=5, train_iters=10)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 1
    assert "elements of exp_avg of 7.final_linear.weight" in err


def test_a_changed_schedule_is_refused_without_a_switch(
    command: Any, copy: Path, config_of: Any, text_data: str
) -> None:
    """Longer training changes the decay: the message names the numbers and both switches."""
    where = {"save": str(copy), "load": str(copy), "checkpoint_factor": 5}
    config_of(1, data_path=text_data, **where, train_iters=12)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 2
    assert "end_iter 10 -> 12" in err
    assert "override_lr_scheduler" in err
