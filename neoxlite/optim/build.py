"""The optimizer of the ``optimizer`` block, as a torch optimizer that the engine wraps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from neoxlite.errors import ConfigError
from neoxlite.optim.groups import parameter_groups

_ADAMW_PARAMS = ("lr", "betas", "eps")


def build_optimizer(cfg: Any, model: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """Return AdamW over the two weight-decay groups; fused into few kernels on CUDA.

    GPT-NeoX's types "adam" and "adamw" are both AdamW: its Adam decays weights apart from the gradient.

    Raises:
        ConfigError: another optimizer type, or a parameter that AdamW does not have.
    """
    block = cfg.optimizer or {"type": "Adam", "params": {}}
    kind, params = str(block["type"]), dict(block.get("params") or {})
    if kind.lower() not in ("adam", "adamw"):
        raise ConfigError(f"optimizer.type: {kind} is not supported yet", hint="neoxlite has Adam (AdamW)")
    unknown = sorted(set(params) - set(_ADAMW_PARAMS))
    if unknown:
        raise ConfigError(
            f"optimizer.params: {', '.join(unknown)} is not a parameter of Adam",
            hint="it takes lr, betas and eps; weight decay is the top-level key weight_decay",
        )
    betas = params.get("betas", (0.9, 0.999))
    return torch.optim.AdamW(
        parameter_groups(model, cfg.weight_decay),
        lr=float(cfg.lr),
        betas=(float(betas[0]), float(betas[1])),
        eps=float(params.get("eps", 1e-8)),
        fused=device.type == "cuda",
    )
