"""The head and its cross entropy in one, so that the logits of a whole micro-batch never stand in memory in fp32.

The gradient of a stretch of tokens is formed as soon as its loss is, in the place of its logits (the idea of Hsu et al.
2024, Liger Kernel). Their rounding is that of the plain way: logits in the model's dtype, everything behind them in
fp32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_TOKENS_AT_ONCE = 32768
"""3.3 GB of bf16 logits at a vocabulary of 50,304; fewer at once is no faster and adds more roundings."""


def head_loss(x: Tensor, matrix: Tensor, labels: Tensor, loss_mask: Tensor | None) -> Tensor:
    """Return the (weighted) mean of -log p(label), as `token_loss` does of the logits ``x @ matrix.T``.

    Args:
        x: (batch, length, hidden).
        matrix: (padded vocabulary, hidden).
        labels: (batch, length).
        loss_mask: (batch, length) weights, or None.
    """
    targets = labels.reshape(-1)
    if loss_mask is None:
        weights = torch.full(targets.shape, 1.0 / targets.numel(), device=x.device)
    else:
        mask = loss_mask.reshape(-1).float()
        weights = mask / mask.sum()
    flat = x.reshape(-1, x.shape[-1])
    loss: Tensor = _HeadLoss.apply(flat, matrix, targets, weights)  # type: ignore[no-untyped-call]
    return loss


class _HeadLoss(torch.autograd.Function):
    """Sum of ``weights * -log softmax(x @ matrix.T)[targets]`` over the tokens, with both gradients at hand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        wants_gradient = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        losses = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        grad_x = torch.empty_like(x) if wants_gradient else None
        several = x.shape[0] > _TOKENS_AT_ONCE
        grad_matrix = torch.zeros_like(matrix, dtype=torch.float32) if wants_gradient and several else None
        for first in range(0, x.shape[0], _TOKENS_AT_ONCE):
            part = slice(first, first + _TOKENS_AT_ONCE)
            logits = x[part] @ matrix.t()
            _to_gradients(logits, targets[part], weights[part], losses[part])
            if grad_x is not None:
                torch.mm(logits, matrix, out=grad_x[part])
                product = logits.t() @ x[part]
                grad_matrix = product if grad_matrix is None else grad_matrix.add_(product)
        if grad_x is not None:
            assert grad_matrix is not None
            ctx.save_for_backward(grad_x, grad_matrix.to(matrix.dtype))
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_x, grad_matrix = ctx.saved_tensors
        # Not 1: accumulation divides the loss by its number of micro-batches.
        return grad_x * grad.to(grad_x.dtype), grad_matrix * grad.to(grad_matrix.dtype), None, None


def _to_gradients(logits: Tensor, targets: Tensor, weights: Tensor, losses: Tensor) -> None:
    """Write the losses of tokens, and into ``logits`` (tokens, vocabulary) the gradients of the logits."""
    if logits.is_cuda:
        from neoxlite.model.triton_loss import to_gradients

        to_gradients(logits, targets, weights, losses)
        return
    log_p = logits.float().log_softmax(dim=-1)
    places = targets.unsqueeze(-1)
    losses.copy_(-log_p.gather(-1, places).squeeze(-1) * weights)
    gradients = log_p.exp_()
    gradients.scatter_add_(-1, places, torch.full_like(places, -1, dtype=gradients.dtype))
    logits.copy_(gradients.mul_(weights.unsqueeze(-1)))
