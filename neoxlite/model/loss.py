"""Cross entropy of next tokens, in fp32 whatever the logits' precision."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def token_loss(logits: Tensor, labels: Tensor, loss_mask: Tensor | None = None) -> Tensor:
    """Return the (weighted) mean of -log p(label) in nats over all tokens of a micro-batch.

    Args:
        logits: (batch, length, vocabulary).
        labels: (batch, length).
        loss_mask: (batch, length) weights; the mean is ``sum(loss * mask) / sum(mask)``, as in GPT-NeoX.
    """
    flat = logits.float().view(-1, logits.shape[-1])
    if loss_mask is None:
        return F.cross_entropy(flat, labels.reshape(-1))
    losses = F.cross_entropy(flat, labels.reshape(-1), reduction="none")
    weights = loss_mask.reshape(-1).to(losses.dtype)
    return (losses * weights).sum() / weights.sum()
