"""Models that run with their weights left in the files: every matrix is read by blocks when it is used.

So the logits of a model can be computed in fp32 that would not fit into memory. A module on the meta device gets its
computing parts replaced; what lies between them, which is what conversions get wrong, is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neoxlite.convert.weight import Weight
from neoxlite.model.gpt import GPTModel
from neoxlite.model.layers import Table, VocabularyTable
from neoxlite.model.naming import layer_parameters
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.linear import ColumnParallelLinear, RowParallelLinear

_LINEAR = (nn.Linear, ColumnParallelLinear, RowParallelLinear)
_TABLES = (nn.Embedding, Table)


def our_logits(spec: ModelSpec, weights: Mapping[str, Weight], tokens: Tensor) -> Tensor:
    """Return the fp32 logits (batch, length, padded vocabulary) of our model with ``weights`` by layer and name."""
    with torch.device("meta"):
        model = GPTModel(spec)
    _leave_in_files(model, {name: weights[name] for name, _ in layer_parameters(model)})
    with torch.inference_mode():
        return model.eval()(tokens)  # type: ignore[no-any-return]


def transformers_logits(model: Any, weights: Mapping[str, Weight], tokens: Tensor) -> Tensor:
    """Return the fp32 logits (batch, length, vocabulary) of a transformers model that was made on the meta device."""
    _leave_in_files(model, weights)
    for name, module in list(model.named_modules()):
        # Rotary frequencies: buffers that follow from the configuration.
        if any(buffer.is_meta for buffer in module.buffers(recurse=False)):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, type(module)(model.config))
    with torch.inference_mode():
        return model.eval()(tokens, use_cache=False).logits  # type: ignore[no-any-return]


def _leave_in_files(model: nn.Module, weights: Mapping[str, Weight]) -> None:
    for prefix, module in model.named_modules():
        names = [name for name, _ in module.named_parameters(recurse=False)]
        own = {name: weights[f"{prefix}.{name}"] for name in names}
        target: Any = module
        if isinstance(module, _LINEAR):
            target.forward = _linear(own["weight"], own.get("bias"))
        elif isinstance(module, _TABLES):
            target.forward = _table(own["weight"])
            if isinstance(module, VocabularyTable):
                target.logits = _linear(own["weight"], None)
        else:
            for name, weight in own.items():  # norms: one row
                setattr(module, name, nn.Parameter(weight.whole().float(), requires_grad=False))


def _linear(matrix: Weight, bias: Weight | None) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        out = torch.cat([F.linear(x, block.float()) for block in matrix.blocks()], dim=-1)
        return out if bias is None else out + bias.whole().float()

    return forward


def _table(matrix: Weight) -> Callable[[Tensor], Tensor]:
    def forward(indices: Tensor) -> Tensor:
        rows = [matrix.rows(int(index), int(index) + 1) for index in indices.reshape(-1)]
        return torch.cat(rows).float().view(*indices.shape, -1)

    return forward
