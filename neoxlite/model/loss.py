"""Cross entropy of next tokens, in fp32 whatever the logits' precision."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from neoxlite.parallel.cross_entropy import sliced_cross_entropy
from neoxlite.parallel.topology import Topology


def token_loss(logits: Tensor, labels: Tensor, loss_mask: Tensor | None, topology: Topology) -> Tensor:
    """Return the (weighted) mean of -log p(label) in nats over all tokens of a micro-batch.

    Args:
        logits: (batch, length, vocabulary), or this tensor-parallel rank's slice of the vocabulary.
        labels: (batch, length).
        loss_mask: (batch, length) weights; the mean is ``sum(loss * mask) / sum(mask)``, as in GPT-NeoX, and 0 where
            nothing counts, which there is not a number. None counts all alike.
    """
    flat, targets = logits.float().view(-1, logits.shape[-1]), labels.reshape(-1)
    sliced = topology.tensor_size > 1
    if loss_mask is None and not sliced:
        return F.cross_entropy(flat, targets)
    if sliced:
        losses = sliced_cross_entropy(flat, targets, topology)
    else:
        losses = F.cross_entropy(flat, targets, reduction="none")
    if loss_mask is None:
        return losses.mean()
    weights = loss_mask.reshape(-1).to(losses.dtype)
    return (losses * weights).sum() / divisor(weights)


def divisor(weights: Tensor) -> Tensor:
    """Return the sum of ``weights``, or 1 where it is 0: a micro-batch of masked tokens alone then changes nothing."""
    total = weights.sum()
    return total.where(total != 0, 1)
