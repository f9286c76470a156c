"""Exports: what transformers makes of them by itself has the checkpoint's logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from neoxlite.checkpoint.restore import restore
from neoxlite.convert.to_hf import export
from tests.neoxlite.convert.samples import LLAMA

NEOX: dict[str, dict[str, Any]] = {
    "rotary25_sequential": {},
    "rotary100_sequential": {"rotary_pct": 1.0},
    "parallel": {"gpt_j_residual": True},
    "parallel_one_norm": {"gpt_j_residual": True, "gpt_j_tied": True},
    "tied": {"no_weight_tying": False, "rotary_pct": 0.5},
    "no_attention_bias": {"use_bias_in_attn_linear": False},
    "no_mlp_bias": {"use_bias_in_mlp": False},
    "no_norm_bias": {"use_bias_in_norms": False},
    "tanh_gelu": {"bias_gelu_fusion": True},
    "relu": {"activation": "relu"},
    "silu": {"activation": "silu"},
    "mish": {"activation": "mish"},
    "epsilon": {"layernorm_epsilon": 1e-3},
    "base": {"rotary_emb_base": 500000},
}
GATED: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama_gqa": {**LLAMA, "num_kv_heads": 2},
    "llama_mqa_tied": {**LLAMA, "num_kv_heads": 1, "no_weight_tying": False},
    "llama_biases": {**LLAMA, "use_bias_in_mlp": True, "use_bias_in_attn_linear": True},
    "llama_attention_bias_gqa": {**LLAMA, "use_bias_in_attn_linear": True, "num_kv_heads": 2},
    "llama_geglu": {**LLAMA, "activation": "geglu"},
    "llama_reglu": {**LLAMA, "activation": "reglu"},
    "llama_glu": {**LLAMA, "activation": "glu"},
    "llama_bilinear": {**LLAMA, "activation": "bilinear"},
    "llama_base": {**LLAMA, "rotary_emb_base": 1000000, "rms_norm_epsilon": 1e-5},
}


def difference(folder: Path, exported: Path, dtype: torch.dtype = torch.float32) -> float:
    """Return the largest difference of a logit between our model and AutoModelForCausalLM, both in fp32."""
    from neoxlite.convert.compare import quiet

    with quiet():
        from transformers import AutoModelForCausalLM, AutoTokenizer

        theirs = AutoModelForCausalLM.from_pretrained(exported)
        assert {parameter.dtype for parameter in theirs.parameters()} == {dtype}
        ids = AutoTokenizer.from_pretrained(exported)("def f(x): 日本", return_tensors="pt")["input_ids"]
    restored = restore(folder, torch.device("cpu"))
    assert ids[0].tolist() == restored.tokenizer.encode("def f(x): 日本")
    with torch.no_grad():
        return float((restored.model(ids) - theirs.float()(ids).logits).abs().max())


@pytest.mark.parametrize("name", NEOX)
def test_gpt_neox_exports_have_the_logits(name: str, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """Both residual forms, shares of rotation, biases on and off, tied and untied, every activation: 1e-5 in fp32."""
    folder = checkpoint(**NEOX[name]) / "global_step7"
    done = export(folder, tmp_path / "書出", shard_bytes=1 << 30)
    assert done.class_name == "GPTNeoXForCausalLM"
    assert done.comparison.difference <= 1e-5
    assert difference(folder, tmp_path / "書出") <= 1e-5


@pytest.mark.parametrize("name", GATED)
def test_llama_exports_have_the_logits(name: str, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """RMSNorm and gated MLPs, with grouped queries, biases and tying: 1e-5 in fp32."""
    folder = checkpoint(**GATED[name]) / "global_step7"
    done = export(folder, tmp_path / "out", shard_bytes=1 << 30)
    assert done.class_name == "LlamaForCausalLM"
    assert done.comparison.difference <= 1e-5
    assert difference(folder, tmp_path / "out") <= 1e-5
