"""ALiBi against BLOOM's, and sliding windows against a mask written out, whole, cached, sliced and recomputed."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from neoxlite.model.alibi import FEATURES, Alibi, alibi_slopes
from neoxlite.model.attention import SelfAttention
from neoxlite.model.cache import KeyValueCache
from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.position_tables import PositionTables
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.topology import Topology

SIZES: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_kv_heads": 6,
    "seq_length": 40,
    "max_position_embeddings": 40,
    "padded_vocab_size": 64,
    "mlp_hidden_size": 64,
    "init_method_std": 0.3,
}


def bloom_penalty(heads: int, length: int) -> torch.Tensor:
    """Return slope x key position, (heads, length) in fp32, as transformers' BLOOM computes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    found: torch.Tensor = build_alibi_tensor(torch.ones(1, length), heads, torch.float32)
    return found.view(heads, length)


@pytest.mark.parametrize("heads", [1, 2, 4, 6, 8, 12, 16, 20, 40])
def test_slopes_are_bloom_s(heads: int) -> None:
    """For powers of two and for other numbers of heads, where every other slope of the next power fills up."""
    theirs = bloom_penalty(heads, 3)
    torch.testing.assert_close(torch.tensor(alibi_slopes(heads)), theirs[:, 1], rtol=1e-6, atol=0)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor, window: int) -> torch.Tensor:
    """Return attention in fp64 with the penalty and the window written out."""
    length = q.shape[-2]
    away = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    scores = q.double() @ k.double().transpose(-2, -1) / math.sqrt(q.shape[-1]) + slopes[:, None, None] * away
    return scores.masked_fill((away > 0) | (away < -window), -math.inf).softmax(-1) @ v.double()


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_the_penalty_in_the_dot_product_is_exact(dtype: torch.dtype, limit: float) -> None:
    """At 1,200 positions in fp32 it is the matrix's to rounding; in 16 bits the error is that of a plain product."""
    torch.manual_seed(1)
    heads, length, size = 6, 1200, 16
    q, k, v = (torch.randn(1, heads, length, size).to(dtype) for _ in range(3))
    expected = reference(q, k, v, bloom_penalty(heads, 2)[:, 1].double(), length)
    q, k, v = Alibi(heads, 0, heads, size).extend(q, k, v, 0)
    assert q.shape[-1] == size + FEATURES
    got = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=size**-0.5)[..., :size]
    assert float((got.double() - expected).abs().max()) < limit


def test_each_tensor_rank_has_the_slopes_of_its_heads() -> None:
    """Two ranks of three heads each compute what one of six does."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 6, 30, 8) for _ in range(3))

    def attend(alibi: Alibi, heads: slice) -> torch.Tensor:
        parts = alibi.extend(q[:, heads], k[:, heads], v[:, heads], 0)
        return F.scaled_dot_product_attention(*parts, is_causal=True, scale=8**-0.5)[..., :8]

    whole = attend(Alibi(6, 0, 6, 8), slice(0, 6))
    halves = [attend(Alibi(6, first, 3, 8), slice(first, first + 3)) for first in (0, 3)]
    torch.testing.assert_close(torch.cat(halves, 1), whole)


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("pos_emb", ["none", "alibi"])
def test_a_window_hides_what_is_before_it(pos_emb: str, kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token sees itself and 7 before it, in one stretch of queries and in several, with grouped queries too."""
    spec = ModelSpec(**{**SIZES, "pos_emb": pos_emb, "num_kv_heads": kv_heads, "window": 7})
    attention = SelfAttention(spec, 0, Topology(), None)
    torch.manual_seed(2)
    q, k, v = (torch.randn(2, heads, 40, 8) for heads in (6, kv_heads, kv_heads))
    slopes = bloom_penalty(6, 2)[:, 1].double() * (pos_emb == "alibi")
    expected = reference(q, *(x.repeat_interleave(6 // kv_heads, 1) for x in (k, v)), slopes, 7)
    parts = attention.alibi.extend(q, k, v, 0) if attention.alibi is not None else (q, k, v)
    for stretch in (1024, 1, 16):  # shorter than the window: as long as it is
        monkeypatch.setattr("neoxlite.model.attention._LEAST_STRETCH", stretch)
        got = attention._attend(*parts, 0)[..., :8]
        torch.testing.assert_close(got, expected.float(), rtol=1e-5, atol=1e-6)


def model_of(**changes: Any) -> GPTModel:
    """Return an initialised model of 40 positions."""
    spec = ModelSpec(**{**SIZES, **changes})
    model = GPTModel(spec)
    initialise(model, spec, seed=3)
    return model


VARIANTS: dict[str, dict[str, Any]] = {
    "alibi": {"pos_emb": "alibi"},
    "window": {"pos_emb": "rotary", "window": 9},
    "alibi in a window": {"pos_emb": "alibi", "window": 9, "num_kv_heads": 2},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_cache_recomputation_and_dropout_see_the_same(name: str) -> None:
    """Prompts in parts, token by token; gradients with recomputation; and the path of dropout with a rate of 0."""
    model = model_of(**VARIANTS[name]).eval()
    tokens = torch.randint(0, 64, (2, 40), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        whole = model(tokens)
        cache = KeyValueCache(model.spec, 2, 40, torch.device("cpu"), torch.float32)
        bounds = [0, 1, 12, 30, *range(31, 41)]
        for first, last in itertools.pairwise(bounds):
            got = model.generate_step(tokens[:, first:last], cache)
            torch.testing.assert_close(got, whole[:, last - 1], rtol=1e-5, atol=1e-5)
    model.train()
    losses = []
    for changes in ({}, {"checkpoint_activations": True}, {"attention_dropout": 1e-12}):
        other = model_of(**VARIANTS[name], **changes).train()
        loss = other(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        losses.append((loss.detach(), *(parameter.grad for parameter in other.parameters())))
    for others in losses[1:]:
        torch.testing.assert_close(others, losses[0], rtol=1e-4, atol=1e-5)


def test_tables_grow_by_doubling() -> None:
    """Generation asks for one position more with each token; the tables of each dtype are made a few times only."""
    lengths: list[int] = []

    def make(length: int, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor]:
        lengths.append(length)
        return (torch.arange(length, dtype=dtype, device=device).unsqueeze(-1),)

    tables = PositionTables(make)
    for length in range(10, 100):
        assert tables.get(length, torch.device("cpu"), torch.float32)[0][length - 1].item() == length - 1
    tables.get(200, torch.device("cpu"), torch.float32)
    tables.get(7, torch.device("cpu"), torch.bfloat16)
    assert lengths == [10, 20, 40, 80, 160, 320, 7]


def test_training_goes_on_after_a_generation() -> None:
    """Tables that `generate` made under inference mode are saved for the backward pass too."""
    model = model_of(pos_emb="rotary").train()
    tokens = torch.zeros(1, 8, dtype=torch.long)
    with torch.inference_mode():
        model(tokens)
    model(tokens, tokens).backward()
