"""Weight-decay groups against those recorded from GPT-NeoX."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from neoxlite.errors import ConfigError
from neoxlite.model.gpt import GPTModel
from neoxlite.model.spec import ModelSpec
from neoxlite.optim.build import build_optimizer
from neoxlite.optim.groups import parameter_groups

RUNS = json.loads((Path(__file__).parents[2] / "golden" / "training" / "training.json").read_text())["runs"]


@pytest.mark.parametrize("name", ["main", "no_wd", "tied", "llama"])
def test_groups_hold_the_parameters_that_gpt_neox_put_there(name: str, config_of: Callable[..., Any]) -> None:
    """Norms and biases do not decay, embeddings and the head do; with no decay at all there is one group."""
    run = RUNS[name]
    cfg = config_of(**run["config"])
    with torch.device("meta"):
        model = GPTModel(ModelSpec.from_config(cfg, 64))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, cfg.weight_decay)
    got = [(group["weight_decay"], {names[id(parameter)] for parameter in group["params"]}) for group in groups]
    expected = [
        (group["weight_decay"], {name.replace("tied_modules.embed", "0") for name in group["params"]})
        for group in run["param_groups"]
    ]
    assert got == expected


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"type": "Lion", "params": {"lr": 0.01}}, "Lion"),
        ({"type": "Adam", "params": {"lr": 0.01, "momentum": 0.9}}, "momentum"),
    ],
)
def test_other_optimizers_are_refused_by_name(
    optimizer: dict[str, Any], message: str, config_of: Callable[..., Any]
) -> None:
    """What AdamW cannot honour is said, not dropped: by the configuration, or else when the optimizer is built."""
    with pytest.raises(ConfigError, match=message):
        build_optimizer(config_of(optimizer=optimizer), torch.nn.Linear(2, 2), fused=False)
