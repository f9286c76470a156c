"""Which faster ways of computing the same a run takes: compiled blocks, the head with its loss.

Each is a key of the block ``kernels``: true, false, or nothing for what the device recommends. One that is recommended
and cannot be had is left out with a line that says so; one that is asked for is refused.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from neoxlite.errors import ConfigError
from neoxlite.model.layers import Block
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.topology import Topology


@dataclass
class Kernels:
    """The choice for a run."""

    compile_blocks: bool = False
    fused_head_loss: bool = False
    notes: list[str] = field(default_factory=list)
    """Lines for the user about what is left out."""


def choose_kernels(cfg: Any, spec: ModelSpec, topology: Topology, device: torch.device) -> Kernels:
    """Return what a run uses.

    Raises:
        ConfigError: a key asks for what this run or machine does not have.
    """
    chosen, asked = Kernels(), cfg.kernels or {}
    for key, problem in (
        ("compile_blocks", _why_no_compiling(spec, topology, device)),
        ("fused_head_loss", _why_no_fused_loss(topology, device)),
    ):
        setattr(chosen, key, _choose(f"kernels.{key}", asked.get(key), device, problem, chosen))
    return chosen


def _choose(key: str, asked: bool | None, device: torch.device, problem: str | None, chosen: Kernels) -> bool:
    if asked is False or (asked is None and device.type != "cuda"):
        return False
    if problem is None:
        return True
    if asked:
        raise ConfigError(f"{key}: true cannot be: {problem}", hint=f"leave {key} out, or set it to false")
    chosen.notes.append(f"without {key}, which is slower: {problem}")
    return False


def _why_no_fused_loss(topology: Topology, device: torch.device) -> str | None:
    if topology.tensor_size > 1:
        return f"model_parallel_size {topology.tensor_size} slices the head"
    if topology.pipeline_size > 1:
        return f"pipe_parallel_size {topology.pipeline_size}: the loss is apart from the head there"
    return _why_no_triton(device)


def _why_no_compiling(spec: ModelSpec, topology: Topology, device: torch.device) -> str | None:
    if topology.tensor_size > 1:
        return f"model_parallel_size {topology.tensor_size}: collectives stand inside the blocks"
    if spec.hidden_dropout or spec.attention_dropout:
        return "dropout, whose masks do not depend on the layout"
    return _why_no_triton(device)


def _why_no_triton(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    try:
        import triton  # noqa: F401
    except ImportError:
        return "Triton is not installed"
    if torch.cuda.get_device_capability(device) < (7, 0):
        return "Triton needs compute capability 7.0"
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return "Triton needs a C compiler (cc, gcc or clang) on PATH, and there is none"
    return None


def compile_blocks(
    model: nn.Module, length: int, device: torch.device, dtype: torch.dtype, *, backend: str = "inductor"
) -> None:
    """Have torch compile the blocks where they stand, when they first run; all blocks share one compiled graph.

    Args:
        length: tokens of a sequence.
    """
    for block in model.modules():
        if isinstance(block, Block):
            block.attention.prepare(length, device, dtype)  # or each block would be compiled with and without tables
            block.compile(dynamic=False, backend=backend)
