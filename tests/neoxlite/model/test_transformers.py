"""The model against transformers.GPTNeoXForCausalLM, an independent implementation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.spec import ModelSpec


def transformers_weights(model: GPTModel, head: str) -> dict[str, torch.Tensor]:
    """Return the weights under transformers' names; ``head`` is its release's name of the output matrix."""
    blocks = {str(index + 2): index for index in range(model.spec.num_layers)}
    renamed = {}
    for name, weight in model.state_dict().items():
        layer, _, rest = name.partition(".")
        rest = rest.replace("mlp.linear1", "mlp.dense_h_to_4h").replace("mlp.linear2", "mlp.dense_4h_to_h")
        if layer in blocks:
            renamed[f"gpt_neox.layers.{blocks[layer]}.{rest}"] = weight
        else:
            top = {
                "word_embeddings.weight": "gpt_neox.embed_in.weight",
                "norm.weight": "gpt_neox.final_layer_norm.weight",
                "norm.bias": "gpt_neox.final_layer_norm.bias",
                "final_linear.weight": head,
            }
            renamed[top[rest]] = weight
    return renamed


@pytest.mark.parametrize("rotary_pct", [1.0, 0.25])
@pytest.mark.parametrize("parallel_residual", [False, True])
def test_logits_equal_transformers(
    rotary_pct: float, parallel_residual: bool, golden_config: Callable[..., Any]
) -> None:
    """With the same weights in fp32 the logits agree to 1e-5 for both rotary shares and both residual forms."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    cfg = golden_config(
        num_layers=3,
        hidden_size=64,
        num_attention_heads=4,
        seq_length=32,
        max_position_embeddings=32,
        pos_emb="rotary",
        rotary_pct=rotary_pct,
        gpt_j_residual=parallel_residual,
        no_weight_tying=True,
        init_method_std=0.1,
    )
    spec = ModelSpec.from_config(cfg, 128)
    model = GPTModel(spec).eval()
    initialise(model, spec, seed=7)
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:  # biases and norms begin at 0 and 1, where a mix-up would not show
            torch.nn.init.normal_(parameter, mean=float("norm" in name and name.endswith("weight")), std=0.1)
    reference = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=128,
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=32,
            rotary_pct=rotary_pct,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": rotary_pct},
            use_parallel_residual=parallel_residual,
            hidden_act="gelu",
            layer_norm_eps=1e-5,
            attention_dropout=0.0,
            hidden_dropout=0.0,
            tie_word_embeddings=False,
        )
    ).eval()
    head = next(name for name in reference.state_dict() if name in ("embed_out.weight", "lm_head.weight"))
    missing, unexpected = reference.load_state_dict(transformers_weights(model, head), strict=False)
    assert not unexpected
    assert not [
        name for name in missing if "rotary" not in name and not name.endswith(("attention.bias", "masked_bias"))
    ]
    tokens = torch.randint(0, 128, (3, 32))
    with torch.no_grad():
        difference = (model(tokens) - reference(tokens).logits).abs().max().item()
    assert difference <= 1e-5
