"""The optimizer of the ``optimizer`` block, as a torch optimizer that the engine wraps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from neoxlite.errors import ConfigError
from neoxlite.model.triton_library import why_no_triton
from neoxlite.optim.groups import parameter_groups

_ADAMW_PARAMS = ("lr", "betas", "eps")
_ONE_NODE = 8
"""GPUs that nodes have at most."""


def uses_direct_zero(cfg: Any, device: torch.device) -> tuple[bool, str | None]:
    """Return whether `neoxlite.optim.direct_zero` takes the steps, and a line that says why not where one expects it.

    ``zero_optimization.implementation`` chooses: ``direct``, ``deepspeed``, or ``auto``: direct on the GPUs of one
    node, where it was tried.

    Raises:
        ConfigError: direct is asked for and cannot be.
    """
    asked = cfg.zero_optimization.get("implementation") or "auto"
    if asked == "deepspeed" or (asked == "auto" and (device.type != "cuda" or cfg.precision != "bfloat16")):
        return False, None
    reason = _why_not_direct(cfg) or why_no_triton(device)
    if reason is None and asked == "auto" and cfg.world_size > _ONE_NODE:
        return False, (
            "the steps are taken by DeepSpeed's own optimizer; zero_optimization.implementation: direct is faster on "
            "one node, and was not tried on several"
        )
    if reason is None:
        return True, None
    if asked == "direct":
        raise ConfigError(
            f"zero_optimization.implementation: direct cannot be used: {reason}",
            hint="omit implementation, or set it to deepspeed",
        )
    return False, f"the steps are taken by DeepSpeed's own optimizer, which is slower: {reason}"


def _why_not_direct(cfg: Any) -> str | None:
    if cfg.precision != "bfloat16":
        return f"precision: {cfg.precision}"
    if cfg.zero_stage != 1:
        return f"zero_optimization.stage: {cfg.zero_stage}"
    if cfg.offload is not None:
        return "zero_optimization.offload_optimizer"
    return None


def build_optimizer(cfg: Any, model: nn.Module, *, fused: bool) -> torch.optim.Optimizer:
    """Return AdamW over the two weight-decay groups; ``fused`` into few kernels.

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
        fused=fused,
    )
