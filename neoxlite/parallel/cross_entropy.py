"""Cross entropy of logits whose vocabulary is sliced over the tensor-parallel ranks, without gathering them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from neoxlite.parallel.topology import Topology


class _CrossEntropy(torch.autograd.Function):
    """-log softmax at the label, by two sums and a maximum over the group (Shoeybi et al. 2019, section 3)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, first: int, group: dist.ProcessGroup) -> Tensor:
        largest = logits.max(dim=-1).values
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        shifted = logits - largest.unsqueeze(-1)
        local = labels - first
        elsewhere = (local < 0) | (local >= logits.shape[-1])
        local = local.masked_fill(elsewhere, 0).unsqueeze(-1)
        at_label = shifted.gather(-1, local).squeeze(-1).masked_fill(elsewhere, 0)
        exponentials = shifted.exp()
        sums = torch.stack([at_label, exponentials.sum(dim=-1)])
        dist.all_reduce(sums, group=group)
        ctx.save_for_backward(exponentials / sums[1].unsqueeze(-1), local, elsewhere)
        return sums[1].log() - sums[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        probabilities, local, elsewhere = ctx.saved_tensors
        here = (~elsewhere).to(probabilities.dtype).unsqueeze(-1)
        return probabilities.scatter_add(-1, local, -here) * grad.unsqueeze(-1), None, None, None


def sliced_cross_entropy(logits: Tensor, labels: Tensor, topology: Topology) -> Tensor:
    """Return -log p(label) in nats (tokens), the same on every tensor-parallel rank.

    Args:
        logits: fp32 (tokens, padded vocabulary / tp), this rank's slice.
        labels: (tokens), numbers in the whole vocabulary.
    """
    group = topology.group("tensor")
    losses: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits, labels, topology.tensor_rank * logits.shape[-1], group
    )
    return losses
