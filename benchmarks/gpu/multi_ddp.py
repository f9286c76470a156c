"""What the trainer is held against: torch's DistributedDataParallel around the same model and kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from multi_train import Observed, rough_weights
from torch import nn

from neoxlite.config import load_config
from neoxlite.parallel.ranks import Ranks


def ddp(ranks: Ranks, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Train with torch's DistributedDataParallel (alone: without) and AdamW over an fp32 copy of the weights.

    The model, its kernels and the batch are those of ``config``; the tokens are random. Gradients are reduced in bf16.
    """
    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.kernels import choose_kernels, compile_blocks
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import choose_device, join_world, leave_world, prepare
    from neoxlite.parallel.topology import Grid, create_topology
    from neoxlite.training.engine import model_dtype

    cfg = load_config(arguments["config"], world_size=ranks.world_size)
    device = choose_device(ranks.local_rank)
    prepare(device)
    join_world(ranks, device)
    topology = create_topology(Grid(1, ranks.world_size, 1), ranks.rank)
    vocabulary = arguments["vocabulary"]
    spec = ModelSpec.from_config(cfg, vocabulary)
    with torch.device(device):
        model = GPTModel(spec)
    rough_weights(model)
    model.to(model_dtype(cfg.precision))
    kernels = choose_kernels(cfg, spec, topology, device)
    if kernels.compile_blocks:
        compile_blocks(model, cfg.seq_length, device, model_dtype(cfg.precision))
    model.fused_head_loss = kernels.fused_head_loss
    step = _ddp_step(model, cfg, device, replicated=ranks.world_size > 1)
    observed = Observed(cfg.train_iters, arguments.get("profiled", 0))
    watched = observed.wrap(lambda _engine, batches, _iteration: step(next(batches)))
    batches = _random_batches(cfg, vocabulary, device, ranks.rank)
    ms = []
    for iteration in range(cfg.train_iters):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        loss = watched(None, batches, iteration)
        if device.type == "cuda":
            torch.cuda.synchronize()
        ms.append((time.perf_counter() - began) * 1000)
    if ranks.world_size > 1:
        dist.barrier()
    leave_world()
    timed = ms[len(ms) // 3 : -2]
    tokens = cfg.train_batch_size * cfg.seq_length
    return {
        "ms": ms,
        "tokens": tokens,
        "tokens_per_s": tokens / statistics.median(timed) * 1000,
        "loss": loss.item(),
        **observed.found,
    }


def _random_batches(cfg: Any, vocabulary: int, device: torch.device, seed: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    shape = (cfg.train_micro_batch_size_per_gpu, cfg.seq_length + 1)
    while True:
        yield torch.randint(vocabulary, shape, device=device, generator=generator)


def _ddp_step(model: nn.Module, cfg: Any, device: torch.device, *, replicated: bool) -> Callable[..., torch.Tensor]:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    masters = [weight.detach().float().clone().requires_grad_() for weight in weights]
    for master in masters:
        master.grad = torch.zeros_like(master)
    optimizer = torch.optim.AdamW(
        masters, lr=cfg.lr, betas=(0.9, 0.95), weight_decay=cfg.weight_decay, fused=device.type == "cuda"
    )
    inner: nn.Module = model
    if replicated:
        ids = [device.index] if device.type == "cuda" else None
        inner = nn.parallel.DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = inner(batch[:, :-1], batch[:, 1:])
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [master.grad for master in masters]
        torch._foreach_copy_(gradients, [weight.grad for weight in weights])  # type: ignore[arg-type]
        torch.nn.utils.clip_grad_norm_(masters, cfg.gradient_clipping)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        inner.zero_grad(set_to_none=not replicated)
        return loss.detach()

    return step
