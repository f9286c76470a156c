"""Running a stretch of the layer list: with activation checkpointing if the model asks for it, else sums deferred."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from neoxlite.model.kept_input import KeptInput
from neoxlite.model.layers import Block
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.topology import Topology


def run_layers(layers: Sequence[nn.Module], x: Tensor, spec: ModelSpec, topology: Topology) -> Tensor:
    """Run ``layers``; with activation checkpointing the blocks in groups whose inside is recomputed backward."""
    group = spec.checkpoint_num_layers
    recompute = spec.checkpoint_activations and torch.is_grad_enabled()
    pending: Tensor | None = None
    index = 0
    while index < len(layers):
        if recompute and isinstance(layers[index], Block):
            run = [layer for layer in layers[index : index + group] if isinstance(layer, Block)]
            x = _recomputed(run, x, spec, topology)
            index += len(run)
            continue
        layer = layers[index]
        index += 1
        if isinstance(layer, Block) and layer.deferring:
            if pending is None:  # zeros that need a gradient like the rest: all blocks share one compiled graph
                pending = torch.zeros_like(x, requires_grad=x.requires_grad)
            x, pending = layer(x, pending=pending)
            continue
        if pending is not None:
            x, pending = x + pending, None
        x = layer(x)
    return x if pending is None else x + pending


def _recomputed(run: Sequence[nn.Module], x: Tensor, spec: ModelSpec, topology: Topology) -> Tensor:
    """Run blocks whose inside is recomputed backward, from ``x`` or what is kept of it."""
    shared = spec.partition_activations and topology.tensor_size > 1
    kept = None
    if shared or spec.checkpoint_in_cpu:
        kept = KeptInput(x, topology if shared else Topology(), on_host=spec.checkpoint_in_cpu)
    contexts = partial(_contexts, kept, selective=spec.recompute_granularity == "selective")
    out: Tensor = torch.utils.checkpoint.checkpoint(
        _chain, run, x if kept is None else kept, use_reentrant=False, context_fn=contexts
    )
    if kept is not None:
        kept.let_go()
    return out


_Context = contextlib.AbstractContextManager[Any]


def _contexts(kept: KeptInput | None, *, selective: bool) -> tuple[_Context, _Context]:
    """Return what surrounds the forward pass, and what its repetition."""
    forward, again = _keeping_products() if selective else (contextlib.nullcontext(), contextlib.nullcontext())
    return forward, again if kept is None else _inside(kept, again)


@contextlib.contextmanager
def _inside(kept: KeptInput, context: _Context) -> Iterator[None]:
    # Restored first: the selective contexts count the operations inside them.
    with kept.restored(), context:
        yield


def _keeping_products() -> tuple[_Context, _Context]:
    """Return contexts in which the results of matrix products and of attention are kept, and all else is recomputed."""
    aten = torch.ops.aten
    products = [
        aten.mm.default,
        aten.addmm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
    ]
    make: Any = torch.utils.checkpoint.create_selective_checkpoint_contexts
    contexts: tuple[_Context, _Context] = make(products)
    return contexts


def _chain(layers: Sequence[nn.Module], given: Tensor | KeptInput) -> Any:
    x: Any = given.value if isinstance(given, KeptInput) else given
    for layer in layers:
        x = layer(x)
    return x
