"""The engine of a configuration: the whole model on a rank, or one pipeline stage of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from neoxlite.config.micro_batch import GIB, advice
from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.kernels import choose_kernels, compile_blocks, use_kernels
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.topology import Topology
from neoxlite.training.engine import Engine, built_in_shards, model_dtype
from neoxlite.training.stages import balance_note, stage_bounds

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


def create_engine(
    cfg: NeoxConfig, spec: ModelSpec, topology: Topology, device: torch.device, eod: int | None
) -> Engine:
    """Return an engine with this rank's part of the model, initialised.

    Raises:
        ConfigError: the model cannot be cut or sliced as the layout asks.
    """
    kernels = choose_kernels(cfg, spec, topology, device)
    engine = _engine(cfg, spec, topology, device, eod)
    engine.notes += kernels.notes
    if device.type == "cuda":
        memory_gib = torch.cuda.get_device_properties(device).total_memory / GIB
        engine.notes += advice(cfg, spec.padded_vocab_size, memory_gib)
        engine.notes += filter(None, [balance_note(cfg, spec.padded_vocab_size)])
    use_kernels(engine.module, kernels)
    if kernels.compile_blocks:
        compile_blocks(engine.module, cfg.seq_length, device, model_dtype(cfg.precision))
    if kernels.fused_head_loss:
        _fuse_head_loss(engine.module)
    return engine


def _fuse_head_loss(module: nn.Module) -> None:
    if isinstance(module, GPTModel):
        module.fused_head_loss = True
    else:
        module.fuse_head_loss()  # type: ignore[operator] # a pipeline stage, whose class imports DeepSpeed's pipeline


def _engine(cfg: NeoxConfig, spec: ModelSpec, topology: Topology, device: torch.device, eod: int | None) -> Engine:
    if topology.pipeline_size == 1:
        with built_in_shards(cfg, topology):
            model = GPTModel(spec, topology)
        initialise(model, spec, cfg.seed, topology)
        return Engine(cfg, model, topology, device, eod)
    # Imported here: it pulls in DeepSpeed's pipeline, which other layouts do without.
    from neoxlite.model.pipeline import PipelineStage
    from neoxlite.training.pipeline_engine import PipelineEngine

    stage = PipelineStage(spec, topology, stage_bounds(cfg, spec.padded_vocab_size))
    initialise(stage, spec, cfg.seed, topology)
    return PipelineEngine(cfg, stage, topology, device, eod)
