"""``--set``: values of the command line, over those of the files."""

from __future__ import annotations

from typing import Any

import pytest

from neoxlite.config import ConfigError, load_config, parse_assignments
from tests.neoxlite.config.samples import GOLDEN, Load


def test_overrides() -> None:
    """Dotted keys go into blocks and keep the rest; they win over files and are named as the source."""
    overrides = {"optimizer.params.lr": 1e-4, "train_iters": 5, "zero-optimization.stage": 1}
    files = ["fp16_block_0.yml", "fp16_block_1.yml"]
    cfg = load_config(files, GOLDEN / "config", overrides, world_size=2)
    assert (cfg.lr, cfg.train_iters) == (1e-4, 5)
    assert cfg.optimizer == {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}}
    assert cfg.zero_optimization == {"stage": 1, "reduce_bucket_size": 1000}
    assert cfg.source("train_iters") == "--set"
    assert cfg.as_dict()["train_iters"] == 5


def test_override_of_a_block_that_no_file_has(load: Load) -> None:
    """``zero_optimization.stage=2`` alone begins with GPT-NeoX's default block, and an optimizer with Adam."""
    load()
    path = next(iter(load().config_paths))
    cfg = load_config(path, overrides={"zero_optimization.stage": 2})
    assert cfg.zero_stage == 2
    assert cfg.zero_optimization["reduce_bucket_size"] == 500_000_000


def test_override_leaves_the_callers_values_alone(load: Load) -> None:
    """Two loads of one override mapping and file give the same; nothing is changed in place."""
    path = load().config_paths[0]
    first = load_config(path, overrides={"optimizer.params.eps": 1e-6})
    second = load_config(path)
    assert first.optimizer["params"]["eps"] == 1e-6
    assert "eps" not in second.optimizer["params"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"num_layrs": 1}, "--set: num_layrs is not a GPT-NeoX key"),
        ({"num_layers": "x"}, "--set: num_layers must be a whole number"),
        ({"num_layers.x": 1}, "--set num_layers.x: num_layers is a whole number, not a mapping"),
        ({"optimizer.params.lr.x": 1}, "optimizer.params.lr is a number, not a mapping"),
        ({"optimizer..lr": 1}, "--set optimizer..lr: an empty key"),
        ({"": 1}, "an empty key"),
        ({".a": 1}, "an empty key"),
    ],
)
def test_wrong_overrides(overrides: dict[str, Any], words: str, load: Load) -> None:
    """A mistake in ``--set`` is named as such."""
    path = load().config_paths[0]
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides=overrides)
    assert words in caught.value.message


def test_assignments_are_yaml() -> None:
    """The words after ``--set`` have YAML's types; the value may hold more equal signs."""
    assert parse_assignments(["a=1", "b.c=true", "d=[1, x]", "e=", "f=a=b", "g= 1.0e-4", "h=1e-4", "i={x: 1}"]) == {
        "a": 1,
        "b.c": True,
        "d": [1, "x"],
        "e": None,
        "f": "a=b",
        "g": 1e-4,
        "h": "1e-4",
        "i": {"x": 1},
    }


@pytest.mark.parametrize(
    "word", ["a", "=1", "a=[1", "a=\x07", "a=!!python/name:os.system", "a=2026-13-45", "a=!!bool x", "a=!!int"]
)
def test_wrong_assignments(word: str) -> None:
    """No equal sign, no key, or no YAML."""
    with pytest.raises(ConfigError, match="--set"):
        parse_assignments([word])


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("save_interval", 100, "it is checkpoint_factor now"),
        ("save-interval", 100, "it is checkpoint_factor now"),
        ("geglu", True, "it is activation: geglu now"),
        ("cpu_optimizer", False, "remove cpu_optimizer"),
    ],
)
def test_an_old_key_by_override(key: str, value: Any, hint: str, load: Load) -> None:
    """--set takes today's keys; it tells what has become of one of an earlier release."""
    with pytest.raises(ConfigError, match=f"^--set: {key} is a key of an earlier GPT-NeoX release") as caught:
        load_config(load().config_paths[0], overrides={key: value})
    assert caught.value.hint == hint
