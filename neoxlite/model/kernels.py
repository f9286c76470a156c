"""Which faster ways of computing the same a run takes: compiled blocks, fused functions, products in fp8.

Each is a key of the block ``kernels``: true, false, or nothing for what the device recommends. One that is recommended
and cannot be had is left out with a line that says so; one that is asked for is refused. fp8 is never recommended: it
computes with fewer bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neoxlite.errors import ConfigError
from neoxlite.model import fp8
from neoxlite.model.layers import Block
from neoxlite.model.spec import ModelSpec
from neoxlite.model.triton_library import why_no_triton
from neoxlite.parallel.topology import Topology

_FP8_WIDTH = 2048
"""Hidden size from which fp8 is faster; below, scales and casts cost more than the products save."""


@dataclass
class Kernels:
    """The choice for a run."""

    compile_blocks: bool = False
    fused_head_loss: bool = False
    fused_gelu: bool = False
    fused_rotary: bool = False
    deferred_residual: bool = False
    fp8: str | None = None
    """The recipe (`neoxlite.model.fp8.RECIPES`) by which products are in fp8."""
    notes: list[str] = field(default_factory=list)
    """Lines for the user about what is left out."""


def choose_kernels(cfg: Any, spec: ModelSpec, topology: Topology, device: torch.device) -> Kernels:
    """Return what a run uses.

    Raises:
        ConfigError: a key asks for what this run or machine does not have.
    """
    chosen, asked = Kernels(), cfg.kernels or {}
    no_triton, no_weights = why_no_triton(device), _why_no_whole_weights(cfg)
    for key, problem in (
        ("compile_blocks", no_weights or _why_no_compiling(spec) or no_triton),
        ("fused_head_loss", no_weights or _why_no_fused_loss(cfg) or no_triton),
    ):
        setattr(chosen, key, _choose(f"kernels.{key}", asked.get(key), device, problem, chosen))
    for key, problem in (
        ("fused_gelu", _why_no_fused_gelu(spec) or _why_no_parts(topology)),
        ("fused_rotary", _why_no_fused_rotary(spec) or _why_no_parts(topology)),
        ("deferred_residual", _why_no_deferring(spec)),
    ):
        wanted = asked.get(key)
        if wanted is None and (problem is not None or not chosen.compile_blocks):
            wanted = False  # of no use to this model, or to blocks whose other lines are already said
        problem = problem or no_weights or no_triton
        setattr(chosen, key, _choose(f"kernels.{key}", wanted, device, problem, chosen))
    if asked.get("fp8"):
        _choose("kernels.fp8", True, device, _why_no_fp8(cfg, spec, topology, device) or no_triton, chosen)
        chosen.fp8 = asked.get("fp8_recipe") or "careful"
        if spec.hidden_size < _FP8_WIDTH:
            chosen.notes.append(f"kernels.fp8: slower than without it at hidden_size {spec.hidden_size} < {_FP8_WIDTH}")
    return chosen


def _choose(key: str, asked: bool | None, device: torch.device, problem: str | None, chosen: Kernels) -> bool:
    if asked is False or (asked is None and device.type != "cuda"):
        return False
    if problem is None:
        return True
    if asked:
        raise ConfigError(f"{key}: true cannot be: {problem}", hint=f"omit {key}, or set it to false")
    chosen.notes.append(f"without {key}, which is slower: {problem}")
    return False


def _why_no_whole_weights(cfg: Any) -> str | None:
    if cfg.zero_stage == 3:
        return "zero_optimization.stage 3, which has a module's weights whole only while DeepSpeed's hooks see it run"
    return None


def _why_no_fused_loss(cfg: Any) -> str | None:
    if cfg.precision == "fp16":
        return "precision fp16: it forms the gradients before the loss scale lifts them, and small ones would be lost"
    return None


def _why_no_compiling(spec: ModelSpec) -> str | None:
    if spec.checkpoint_activations and spec.recompute_granularity == "selective":
        return "recompute_granularity selective, which looks at each operation"
    if spec.hidden_dropout or spec.attention_dropout:
        return "dropout, whose masks do not depend on the layout"
    return None


def _why_no_fused_gelu(spec: ModelSpec) -> str | None:
    return None if spec.activation == "gelu" else f"activation {spec.activation}"


def _why_no_fused_rotary(spec: ModelSpec) -> str | None:
    return None if spec.pos_emb == "rotary" else f"pos_emb {spec.pos_emb}"


def _why_no_deferring(spec: ModelSpec) -> str | None:
    if spec.checkpoint_activations:
        return "checkpoint_activations, which would keep two tensors a block instead of one"
    return None


def _why_no_parts(topology: Topology) -> str | None:
    if topology.sequence_parallel:
        return "sequence_parallel: the parts of a sequence are gathered between norm and matrix"
    return None


def _why_no_fp8(cfg: Any, spec: ModelSpec, topology: Topology, device: torch.device) -> str | None:
    if topology.tensor_size > 1:
        return f"model_parallel_size {topology.tensor_size}: the scale of a slice is not that of the matrix"
    sizes = {
        "hidden_size": spec.hidden_size,
        "the MLP's width": spec.mlp_hidden_size,
        "tokens of a micro-batch": cfg.train_micro_batch_size_per_gpu * spec.seq_length,
    }
    for what, size in sizes.items():
        if size % fp8.MULTIPLE:
            return f"{what} {size} is not a multiple of {fp8.MULTIPLE}"
    if device.type != "cuda":
        return None
    if cfg.precision == "fp32":
        return "precision fp32, in which a GPU's products of fp8 add no bias"
    if torch.cuda.get_device_capability(device) < (8, 9):
        return "fp8 needs compute capability 8.9 (Ada, Hopper and later)"
    return None


def use_kernels(model: nn.Module, kernels: Kernels) -> None:
    """Have the blocks of a model use the fused functions and fp8; before `compile_blocks`."""
    for block in _blocks(model):
        attention, mlp = block.attention, block.mlp
        attention.fused_rotary = kernels.fused_rotary
        mlp.fused_gelu = kernels.fused_gelu
        block.deferring = kernels.deferred_residual
        if kernels.fp8 is not None and block.block >= fp8.RECIPES[kernels.fp8].first_block(attention.spec.num_layers):
            attention.fp8 = mlp.fp8 = kernels.fp8
            for layer in (attention.query_key_value, attention.dense, mlp.linear1, mlp.linear2):
                layer.product = partial(fp8.linear, recipe=kernels.fp8)


def compile_blocks(
    model: nn.Module, length: int, device: torch.device, dtype: torch.dtype, *, backend: str = "inductor"
) -> None:
    """Have torch compile the blocks where they stand, when they first run; all blocks share one compiled graph.

    Args:
        length: tokens of a sequence.
    """
    _keep_compiled_code()
    for block in _blocks(model):
        block.attention.prepare(length, device, dtype)  # or each block would be compiled with and without tables
        block.compile(dynamic=False, backend=backend)


def _keep_compiled_code() -> None:
    """Have compiled code kept for the user's next run, where nothing else is said: torch's own place is in /tmp."""
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neoxlite/compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))


def _blocks(model: nn.Module) -> Iterator[Block]:
    return (module for module in model.modules() if isinstance(module, Block))
