"""Evaluation of a checkpoint outside training."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from neoxlite.data import build_datasets
from neoxlite.parallel.distributed import choose_device, join_world, leave_world, lost_peers, prepare
from neoxlite.parallel.ranks import Ranks
from neoxlite.parallel.topology import Grid, create_topology
from neoxlite.training.held_out import held_out_loss

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


def evaluate_checkpoint(
    cfg: NeoxConfig, folder: Path, ranks: Ranks, splits: Iterable[str], samples: int | None = None
) -> dict[str, Any]:
    """Return ``{"checkpoint", "iteration", "splits": {name: {"loss", "perplexity", "tokens"} or None}}``.

    Every rank of ``ranks`` calls this; each gets the same result.

    Args:
        samples: sequences of seq_length tokens at most; None takes each token of a split once.
    """
    device = choose_device(ranks.local_rank)
    prepare(device)
    join_world(ranks, device)
    from neoxlite.checkpoint.restore import restore

    with lost_peers(f"rank {ranks.rank} lost the other ranks"):
        topology = create_topology(Grid(data=ranks.world_size), ranks.rank)
        barrier = dist.barrier if ranks.world_size > 1 else None
        # One sample wanted of each: the index then covers the data once.
        data = build_datasets(cfg, (1, 1, 1), is_builder=ranks.rank == 0, wait=barrier)
        restored = restore(folder, device, cfg=cfg, topology=topology)
        data.check(restored.tokenizer, cfg.padded_vocab_size(restored.tokenizer.vocab_size))
        eod = restored.tokenizer.eod if cfg.eod_mask_loss else None
        results: dict[str, Any] = {}
        for split in splits:
            dataset = getattr(data, split)
            if dataset is None:
                results[split] = None
                continue
            micro = cfg.train_micro_batch_size_per_gpu
            loss = held_out_loss(restored.model, dataset, micro, topology, eod=eod, samples=samples)
            results[split] = loss.as_dict()
        leave_world()
    return {"checkpoint": str(folder), "iteration": restored.iteration, "splits": results}
