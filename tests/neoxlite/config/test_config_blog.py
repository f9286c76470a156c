"""Configurations of 2023 load as they stand: old keys, placeholders, tabs; and mean what they meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from neoxlite.config import NeoxConfig, load_config

_FOLDER = Path(__file__).parent / "blog"
_RUNS = {"1node-dp8": (8, 1), "2node-dp16": (16, 1), "1node-dp4-pp2": (8, 2)}  # GPUs, pipeline stages


def _load(name: str) -> NeoxConfig:
    return load_config(name, _FOLDER, world_size=_RUNS[name][0])


@pytest.mark.parametrize("name", _RUNS)
def test_layout_batch_and_size(name: str) -> None:
    """Copies, stages, global batch and 2,775,208,960 parameters, without a key that neoxlite would have to refuse."""
    world_size, stages = _RUNS[name]
    cfg = _load(name)
    assert (cfg.data_parallel_size, cfg.pipe_parallel_size) == (world_size // stages, stages)
    assert cfg.train_batch_size == 4 * world_size // stages
    assert cfg.pipeline_partition(stages)[-1] == 37
    assert cfg.parameter_count(cfg.padded_vocab_size(50257)) == 2_775_208_960
    assert (cfg.precision, cfg.zero_stage, cfg.lr) == ("fp16", 1, 1.6e-4)
    assert cfg.unsupported == []


@pytest.mark.parametrize("name", _RUNS)
def test_old_keys_mean_what_they_meant(name: str) -> None:
    """save-interval and save_iters say when checkpoints are written, gas the accumulation, each with its line."""
    cfg = _load(name)
    assert cfg.checkpoint_factor == 10000
    assert cfg.extra_save_iters == ([1000, 10000] if name == "1node-dp4-pp2" else None)
    assert cfg.gradient_accumulation_steps == 1
    old = {"gas", "save_iters" if name == "1node-dp4-pp2" else "save_interval"}
    told = {text.split(": ")[1].split()[0] for text in cfg.warnings if "of an earlier GPT-NeoX release" in text}
    assert told == old


@pytest.mark.parametrize("name", _RUNS)
def test_placeholders_are_pointed_out(name: str) -> None:
    """The paths with <user-name> are named once, with the first line; they stay as they are, as in GPT-NeoX."""
    cfg = _load(name)
    (told,) = (text for text in cfg.warnings if "<user-name>" in text)
    place, _, text = told.partition(": ")
    assert place.startswith(f"{_FOLDER}/{name}.yml:")
    paths = "data_path, vocab_file, merge_file, save, load, tensorboard_dir, log_dir"
    assert text == f"put your own in place of <user-name> in {paths}" + (", hostfile" if name == "2node-dp16" else "")
    assert cfg.data_path == "/groups/gxx00000/<user-name>/gpt-neox/data/enwik8/enwik8_text_document"
