"""Activation checkpointing in one process: the same gradients, fewer products or less memory."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.spec import ModelSpec

_SPEC = ModelSpec(
    num_layers=4,
    hidden_size=32,
    num_attention_heads=2,
    num_kv_heads=2,
    seq_length=16,
    max_position_embeddings=16,
    padded_vocab_size=64,
    mlp_hidden_size=128,
    hidden_dropout=0.1,
)


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def _backward(**changes: Any) -> tuple[list[torch.Tensor], Counter[str]]:
    """Return the gradients and the operations of the backward pass."""
    spec = dataclasses.replace(_SPEC, **changes)
    model = GPTModel(spec)
    initialise(model, spec, 1)
    torch.manual_seed(3)
    tokens = torch.randint(0, 64, (2, 16))
    loss = model(tokens, tokens)
    with _Counting() as counting:
        loss.backward()
    return [p.grad for p in model.parameters() if p.grad is not None], counting.calls


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpoint_activations": True},
        {"checkpoint_activations": True, "checkpoint_num_layers": 3},
        {"checkpoint_activations": True, "recompute_granularity": "selective"},
        {"checkpoint_activations": True, "checkpoint_in_cpu": True, "partition_activations": True},
    ],
)
def test_gradients_are_the_same(changes: dict[str, Any]) -> None:
    """Bit by bit, dropout included."""
    expected, *_ = _backward()
    found, *_ = _backward(**changes)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_selective_repeats_no_product() -> None:
    """A block has four products with weights: full recomputation does them again backward, selective none of them."""
    without, full, selective = (
        _backward(**changes)[1]
        for changes in (
            {},
            {"checkpoint_activations": True},
            {"checkpoint_activations": True, "recompute_granularity": "selective"},
        )
    )

    def products(calls: Counter[str]) -> int:
        return calls["mm"] + calls["addmm"]

    assert products(full) == products(without) + 4 * _SPEC.num_layers
    assert products(selective) == products(without)
    assert selective["native_layer_norm"] >= 2 * _SPEC.num_layers
