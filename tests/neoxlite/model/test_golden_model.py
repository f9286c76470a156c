"""The model against logits, losses and gradients recorded from GPT-NeoX."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from neoxlite.errors import ConfigError
from neoxlite.model.gpt import GPTModel
from neoxlite.model.spec import ModelSpec
from neoxlite.training.engine import model_inputs

GOLDEN = Path(__file__).parents[2] / "golden" / "model"
DATA = json.loads((GOLDEN / "model.json").read_text())
VARIANTS = sorted(path.stem for path in GOLDEN.glob("*.npz") if path.stem != "weights")
# Recorded although GPT-NeoX loses the attention branch there.
TRAPS = {"TRAP_gptj_no_mlp_bias"}


def golden_weights(variant: dict[str, Any], model: GPTModel) -> dict[str, torch.Tensor]:
    """Return a variant's weights under this model's names, as fp32.

    A tied embedding stands under layer 0 here; with gpt_j_tied upstream has a second norm in each block that it never
    uses.
    """
    arrays = np.load(GOLDEN / "weights.npz")
    names = dict(model.named_parameters())
    weights = {
        name.replace("tied_modules.embed", "0"): torch.from_numpy(arrays[key].astype(np.float32))
        for name, key in variant["weights"].items()
    }
    unused = {name for name in weights if name not in names}
    assert all("post_attention_layernorm" in name for name in unused)
    assert bool(unused) == variant["config"].get("gpt_j_tied", False)
    return {name: weight for name, weight in weights.items() if name not in unused}


def test_every_recorded_variant_is_compared() -> None:
    """None of those that upstream could run is left out but the one where it is wrong."""
    assert set(VARIANTS) == set(DATA["variants"]) - TRAPS


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_loss_and_gradients_are_gpt_neox_s(name: str, golden_config: Callable[..., Any]) -> None:
    """Both residual forms, all positions, norms and activations of the trunk agree with GPT-NeoX to its rounding."""
    variant = DATA["variants"][name]
    cfg = golden_config(**variant["config"])
    model = GPTModel(ModelSpec.from_config(cfg, DATA["padded_vocab_size"]))
    model.load_state_dict(golden_weights(variant, model))
    expected = np.load(GOLDEN / f"{name}.npz")
    batch = np.load(GOLDEN / "tokens.npy").astype(np.int64)
    tokens, labels, mask = model_inputs(batch, torch.device("cpu"), DATA["eod"] if cfg.eod_mask_loss else None)

    np.testing.assert_allclose(model(tokens).detach().numpy(), expected["logits"], atol=5e-5, rtol=0)
    loss = model(tokens, labels, mask)
    assert loss.item() == pytest.approx(variant["loss"], abs=1e-5)

    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for key in (key for key in expected.files if key.startswith("grad/")):
        own_name = key.removeprefix("grad/").replace("tied_modules.embed", "0")
        np.testing.assert_allclose(gradients[own_name].numpy(), expected[key], atol=5e-6, rtol=1e-4, err_msg=key)
    for upstream_name, norm in variant["grad_l2"].items():
        if norm is not None:
            own_norm = gradients[upstream_name.replace("tied_modules.embed", "0")].norm().item()
            assert own_norm == pytest.approx(norm, rel=1e-4, abs=5e-6), upstream_name


def test_positions_that_are_not_there_are_refused(golden_config: Callable[..., Any]) -> None:
    """A configuration that would need them stops with the key's name, it does not train something else."""
    with pytest.raises(ConfigError, match="pos_emb"):
        ModelSpec.from_config(golden_config(**{**DATA["variants"]["alibi"]["config"], "pos_emb": "rpe"}), 128)


def test_parallel_residual_without_mlp_bias_keeps_its_attention(golden_config: Callable[..., Any]) -> None:
    """GPT-NeoX loses the attention branch in this combination; here every parameter has a gradient."""
    cfg = golden_config(**{**DATA["variants"]["gptj"]["config"], "use_bias_in_mlp": False})
    torch.manual_seed(0)
    model = GPTModel(ModelSpec.from_config(cfg, 128))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = torch.from_numpy(np.load(GOLDEN / "tokens.npy").astype(np.int64))
    model(tokens[:, :-1], tokens[:, 1:]).backward()
    assert all(parameter.grad.norm() > 1e-6 for parameter in model.parameters())
