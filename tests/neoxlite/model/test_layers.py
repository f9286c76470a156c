"""The layer list, the shipped sizes, and recomputation."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest
import torch

from neoxlite.config import load_config
from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.layers import Block, Border, FinalNorm
from neoxlite.model.spec import ModelSpec


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("2-7B", 2_775_208_960), ("125M", 162_322_944), ("1-3B", 1_414_647_808), ("20B", 20_554_567_680)],
)
def test_shipped_models_have_their_exact_parameter_counts(name: str, parameters: int) -> None:
    """Built on the meta device, each has the count that GPT-NeoX's own model has with its padded vocabulary."""
    cfg = load_config(str(resources.files("neoxlite") / "configs" / f"{name}.yml"), allow_unsupported=True)
    vocab = 50432 if name == "20B" else 50304
    with torch.device("meta"):
        model = GPTModel(ModelSpec.from_config(cfg, vocab))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert cfg.parameter_count(vocab) == parameters


def test_the_list_has_gpt_neox_s_indices(golden_config: Callable[..., Any]) -> None:
    """N + 5 entries: embedding, border, N blocks from index 2, border, norm at N + 3, head at N + 4."""
    cfg = golden_config(num_layers=3, hidden_size=8, num_attention_heads=2, seq_length=4, max_position_embeddings=4)
    spec = ModelSpec.from_config(cfg, 16)
    layers = GPTModel(spec).layers
    assert len(layers) == spec.num_list_layers == 8
    assert [type(layer) for layer in layers[1:7]] == [Border, Block, Block, Block, Border, FinalNorm]


@pytest.mark.parametrize("group", [1, 2])
def test_recomputation_changes_nothing_with_dropout(group: int, golden_config: Callable[..., Any]) -> None:
    """Loss and gradients with activation checkpointing equal those without, bit by bit, dropout included."""
    results = []
    for recompute in (False, True):
        cfg = golden_config(
            num_layers=3,
            hidden_size=16,
            num_attention_heads=2,
            seq_length=8,
            max_position_embeddings=8,
            pos_emb="rotary",
            hidden_dropout=0.2,
            attention_dropout=0.2,
            checkpoint_activations=recompute,
            checkpoint_num_layers=group,
        )
        spec = ModelSpec.from_config(cfg, 32)
        model = GPTModel(spec)
        initialise(model, spec, seed=1)
        torch.manual_seed(5)
        tokens = torch.randint(0, 32, (2, 9))
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(plain, again) for plain, again in zip(*results, strict=True))
