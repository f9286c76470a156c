"""Loss of a model over all of a dataset, every token once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist

from neoxlite.model.gpt import GPTModel
from neoxlite.parallel.topology import Topology
from neoxlite.training.engine import model_inputs
from neoxlite.training.log_lines import perplexity

if TYPE_CHECKING:
    from neoxlite.data.gpt_dataset import SampleDataset


@dataclass(frozen=True)
class HeldOut:
    """Mean loss in nats a token, over ``tokens`` predicted tokens."""

    loss: float
    tokens: int

    def as_dict(self) -> dict[str, float | int]:
        """Return loss, perplexity and tokens."""
        return {"loss": self.loss, "perplexity": perplexity(self.loss), "tokens": self.tokens}


@torch.inference_mode()
def held_out_loss(
    model: GPTModel,
    dataset: SampleDataset,
    micro_batch_size: int,
    topology: Topology,
    *,
    eod: int | None = None,
    samples: int | None = None,
) -> HeldOut:
    """Return the loss over the first ``samples`` samples, or all; the replicas share them.

    Args:
        eod: if given, tokens behind it do not count (eod_mask_loss).
    """
    device = next(model.parameters()).device
    count = len(dataset) if samples is None else min(samples, len(dataset))
    mine = range(topology.data_rank, count, topology.data_size)
    # In fp64: the sum over a large dataset must not round the later losses away.
    total = torch.zeros(2, dtype=torch.float64, device=device)
    for first in range(0, len(mine), micro_batch_size):
        batch = np.stack([dataset[number] for number in mine[first : first + micro_batch_size]])
        tokens, labels, mask = model_inputs(batch, device, eod)
        weight = float(tokens.numel()) if mask is None else float(mask.sum())
        if weight:
            total += torch.tensor([float(model(tokens, labels, mask)) * weight, weight], device=device)
    group = topology.group("data")
    if group is not None:
        dist.all_reduce(total, group=group)
    loss_sum, weight_sum = total.tolist()
    return HeldOut(loss_sum / weight_sum if weight_sum else float("nan"), int(weight_sum))
