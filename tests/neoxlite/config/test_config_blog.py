"""Configurations of 2023 load as they stand: old keys, placeholders, tabs; and mean what they meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neoxlite.config import ConfigError, NeoxConfig, load_config
from tests.neoxlite.config.samples import Load, golden

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
    assert cfg.extra_save_iters == ([5000] if name == "1node-dp4-pp2" else None)
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


# What the authors changed over GPT-NeoX's own 2-7B.yml, in a second file of the same command line.
_OVERLAY = """# Suggested data paths
{
  "data_path": "data/enwik8/enwik8_text_document",
  "vocab_file": "data/gpt2-vocab.json",
  "merge_file": "data/gpt2-merges.txt",
  "save": "checkpoints/gpt-2.7b",
  "load": "checkpoints/gpt-2.7b",
  "checkpoint_validation_with_forward_pass": False,
  "tensorboard_dir": "tensorboard",
  "log_dir": "logs",
  "use_wandb": True,
  "wandb_host": "https://api.wandb.ai",
  "wandb_project": "gpt-neox",
  "wandb_team": "<team>",
  "wandb_group": "gpt-2.7b-dp16",
}
"""


@pytest.mark.parametrize("world_size", [8, 16])
def test_overlay_of_their_own_over_gpt_neoxs_file(world_size: int, tmp_path: Path) -> None:
    """``-d configs 2-7B.yml multi-node/2.7B/dp16-tp1-pp1.yml``: folders in names, GPT-NeoX's file below."""
    (tmp_path / "multi-node" / "2.7B").mkdir(parents=True)
    (tmp_path / "multi-node" / "2.7B" / "dp16-tp1-pp1.yml").write_text(_OVERLAY, encoding="utf-8")
    upstream = golden("config/resolved.json")["shipped_values"]["2-7B"]
    (tmp_path / "2-7B.yml").write_text(json.dumps(upstream), encoding="utf-8")
    cfg = load_config(["2-7B.yml", "multi-node/2.7B/dp16-tp1-pp1.yml"], tmp_path, world_size=world_size)
    assert (cfg.train_batch_size, cfg.data_parallel_size) == (4 * world_size, world_size)
    assert cfg.parameter_count(cfg.padded_vocab_size(50257)) == 2_775_208_960
    assert cfg.source("save") == "dp16-tp1-pp1.yml:6"


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "parameters"),
    [
        (32, 4096, 32, 6_738_415_616),
        (40, 5120, 40, 13_015_864_320),
        (60, 6656, 52, 32_528_943_616),
        (80, 8192, 64, 65_285_660_672),
    ],
)
def test_llama_of_2023(layers: int, hidden: int, heads: int, parameters: int, load: Load) -> None:
    """mlp_type llama with activation silu, as GPT-NeoX's Llama files of 2023 had it: Meta's parameters exactly."""
    cfg = load(
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        make_vocab_size_divisible_by=1,
        pos_emb="rotary",
        rotary_pct=1,
        no_weight_tying=True,
        norm="rmsnorm",
        use_bias_in_norms=False,
        use_bias_in_attn_linear=False,
        mlp_type="llama",
        activation="silu",
    )
    assert (cfg.activation, cfg.use_bias_in_mlp) == ("swiglu", False)
    assert cfg.parameter_count(cfg.padded_vocab_size(32000)) == parameters
    assert any("mlp_type is a key of an earlier GPT-NeoX release: taken as" in text for text in cfg.warnings)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"activation": "mish"}, "activation: 'mish' has no gated form"),
        ({"activation": 3}, "activation: 3 has no gated form"),
        ({"hidden_size": "64"}, "mlp_type: llama needs hidden_size, a whole number"),
        ({"intermediate_size": 1.5}, "mlp_type: llama needs hidden_size, a whole number"),
    ],
)
def test_what_was_no_llama(changes: dict[str, Any], words: str, load: Load) -> None:
    """Other activations and sizes that are none: named with file and line."""
    with pytest.raises(ConfigError, match=words) as caught:
        load(mlp_type="llama", **changes)
    assert "small.yml:" in caught.value.message


def test_activation_of_the_old_default(load: Load) -> None:
    """Without an activation it was gelu there, gated: that is geglu, and the warning says so."""
    cfg = load(mlp_type="llama")
    assert cfg.activation == "geglu"
    assert any("taken as activation: geglu" in text for text in cfg.warnings)
