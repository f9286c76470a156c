"""Logits in bf16 on a GPU, ours and those of transformers, against the same weights in fp32."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch

from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.spec import ModelSpec
from tests.neoxlite.model.test_transformers import transformers_weights

pytestmark = pytest.mark.gpu

_SPEC = ModelSpec(
    num_layers=6,
    hidden_size=256,
    num_attention_heads=4,
    num_kv_heads=4,
    seq_length=128,
    max_position_embeddings=128,
    padded_vocab_size=512,
    mlp_hidden_size=1024,
    rotary_pct=0.25,
    init_method_std=0.05,
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("parallel_residual", [False, True])
def test_logits(dtype: torch.dtype, parallel_residual: bool) -> None:
    """Ours are no further from fp32 than twice what transformers' are, and both near it."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    spec = dataclasses.replace(_SPEC, parallel_residual=parallel_residual)
    model = GPTModel(spec).eval()
    initialise(model, spec, 7)
    theirs = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=512,
            hidden_size=256,
            num_hidden_layers=6,
            num_attention_heads=4,
            intermediate_size=1024,
            max_position_embeddings=128,
            rotary_pct=0.25,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
            use_parallel_residual=parallel_residual,
            hidden_act="gelu",
            attention_dropout=0.0,
            hidden_dropout=0.0,
            tie_word_embeddings=False,
        )
    ).eval()
    head = next(name for name in ("lm_head.weight", "embed_out.weight") if name in theirs.state_dict())
    missing, unexpected = theirs.load_state_dict(transformers_weights(model, head), strict=False)
    assert not unexpected
    assert all("inv_freq" in name or "attention.bias" in name or "masked_bias" in name for name in missing)
    tokens = torch.randint(0, 512, (4, 128), generator=torch.Generator().manual_seed(1)).cuda()
    with torch.no_grad():
        exact = model.cuda()(tokens)
        own = model.to(dtype)(tokens).float()
        other = theirs.cuda().to(dtype)(tokens).logits.float()
    scale = exact.std()
    error, their_error = ((logits - exact).norm() / exact.norm() for logits in (own, other))
    assert scale > 0.1
    assert error < 0.02
    assert error < 2 * their_error + 1e-4
