"""Which parameters decay: GPT-NeoX's two groups (megatron/model/utils.py, get_params_for_weight_decay_optimization)."""

from __future__ import annotations

from typing import Any

from torch import nn

from neoxlite.model.norms import LayerNorm, RMSNorm


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split into ``weight_decay_params`` (matrices, embeddings, head) and ``no_weight_decay_params`` (norms, biases).

    With ``weight_decay`` 0 the split has no effect and one group is returned: fewer, larger kernels.
    """
    decaying: list[nn.Parameter] = []
    constant: list[nn.Parameter] = []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            exempt = isinstance(module, LayerNorm | RMSNorm) or name == "bias"
            (constant if exempt else decaying).append(parameter)
    if weight_decay == 0.0:
        return [{"name": "weight_decay_params", "params": decaying + constant, "weight_decay": 0.0}]
    groups = [
        {"name": "weight_decay_params", "params": decaying, "weight_decay": weight_decay},
        {"name": "no_weight_decay_params", "params": constant, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
