"""ALiBi and sliding windows on a GPU: right in bf16, and without a matrix of length x length."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from neoxlite.model.attention import SelfAttention
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.topology import Topology
from tests.neoxlite.model.test_positions import SIZES, reference

pytestmark = pytest.mark.gpu

# Of 12 heads (Press et al. 2022): those of 8, then every other one of 16. Without transformers, which may not be there.
SLOPES = torch.tensor([2.0**-place for place in range(1, 9)] + [2.0 ** -(place + 0.5) for place in range(4)]).double()
BIG: dict[str, Any] = {**SIZES, "hidden_size": 768, "num_attention_heads": 12, "num_kv_heads": 12}


@pytest.mark.parametrize("window", [None, 300])
@pytest.mark.parametrize("kv_heads", [12, 4])
@pytest.mark.parametrize("pos_emb", ["none", "alibi"])
def test_bf16_is_right_and_small(pos_emb: str, kv_heads: int, window: int | None) -> None:
    """Against fp64 with penalty and window written out; 12 heads of 4,096 x 4,096 scores would be 384 MiB."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    spec = ModelSpec(**{**BIG, "num_kv_heads": kv_heads, "pos_emb": pos_emb, "window": window})
    attention = SelfAttention(spec, 0, Topology(), None).cuda().bfloat16()
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, heads, 4096, 64, dtype=torch.bfloat16) for heads in (12, kv_heads, kv_heads))
    slopes = SLOPES * (pos_emb == "alibi")
    wide = [x.repeat_interleave(12 // kv_heads, 1) for x in (k, v)]
    with torch.device("cuda"):
        expected = reference(q.cuda(), *(x.cuda() for x in wide), slopes.cuda(), window or 4096)
    on_device = [x.cuda().requires_grad_() for x in (q, k, v)]
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    parts = attention.alibi.extend(*on_device, 0) if attention.alibi is not None else on_device
    got = attention._attend(*parts, 0)[..., :64]
    got.float().square().sum().backward()
    used = torch.cuda.max_memory_allocated() - before
    assert float((got.detach().double() - expected).abs().max()) < 3e-2
    assert used < 200 << 20
