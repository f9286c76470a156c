"""What activation checkpointing keeps on a GPU, in bytes."""

from __future__ import annotations

import pytest
import torch

from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.spec import ModelSpec

pytestmark = pytest.mark.gpu


def _kept(**changes: object) -> int:
    """Return the bytes that the forward pass of eight blocks leaves behind for the backward pass."""
    settings: dict[str, object] = {
        **dict.fromkeys(("num_attention_heads", "num_kv_heads"), 8),
        **dict.fromkeys(("seq_length", "max_position_embeddings"), 512),
        "num_layers": 8,
        "hidden_size": 512,
        "padded_vocab_size": 128,
        "mlp_hidden_size": 2048,
    }
    spec = ModelSpec(**{**settings, **changes})  # type: ignore[arg-type]
    model = GPTModel(spec)
    initialise(model, spec, 1)
    model = model.to("cuda", torch.bfloat16)
    tokens = torch.randint(0, 128, (8, 512), device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    loss = model(tokens, tokens)
    torch.cuda.synchronize()
    kept = torch.cuda.memory_allocated() - before
    loss.backward()
    assert all(parameter.grad is not None and torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    return kept


def test_bytes() -> None:
    """Nothing recomputed > selective > one input a block > every fourth > inputs on the host."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    nothing = _kept()
    selective = _kept(checkpoint_activations=True, recompute_granularity="selective")
    full = _kept(checkpoint_activations=True)
    fourth = _kept(checkpoint_activations=True, checkpoint_num_layers=4)
    host = _kept(checkpoint_activations=True, checkpoint_in_cpu=True)
    assert nothing > 1.3 * selective
    assert selective > 4 * full
    one_input = 8 * 512 * 512 * 2
    assert full - fourth == pytest.approx(6 * one_input, rel=0.05)
    assert full - host == pytest.approx(8 * one_input, rel=0.05)
