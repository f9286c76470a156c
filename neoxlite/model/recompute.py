"""Running a stretch of the layer list, with activation checkpointing if the model asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from neoxlite.model.layers import Block
from neoxlite.model.spec import ModelSpec


def run_layers(layers: Sequence[nn.Module], x: Tensor, spec: ModelSpec) -> Tensor:
    """Run ``layers``; with activation checkpointing the blocks in groups whose inside is recomputed backward."""
    group = spec.checkpoint_num_layers
    recompute = spec.checkpoint_activations and torch.is_grad_enabled()
    index = 0
    while index < len(layers):
        if recompute and isinstance(layers[index], Block):
            run = [layer for layer in layers[index : index + group] if isinstance(layer, Block)]
            x = torch.utils.checkpoint.checkpoint(_chain, run, x, use_reentrant=False)
            index += len(run)
        else:
            x = layers[index](x)
            index += 1
    return x


def _chain(layers: Sequence[nn.Module], x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x
