"""The head and its cross entropy in one, so that the logits of a whole micro-batch never stand in memory in fp32.

The gradient of a stretch of tokens is formed as soon as its loss is, in the place of its logits (the idea of Hsu et al.
2024, Liger Kernel). Their rounding is that of the plain way: logits in the model's dtype, everything behind them in
fp32. Where the vocabulary is sliced, the ranks exchange two numbers a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neoxlite.model.loss import divisor
from neoxlite.parallel.collectives import finished, start_gather, whole_sequence
from neoxlite.parallel.topology import Topology

_TOKENS_AT_ONCE = 32768
"""3.3 GB of bf16 logits at a vocabulary of 50,304; fewer at once is no faster and adds more roundings."""


def head_loss(
    x: Tensor, matrix: Tensor, labels: Tensor, loss_mask: Tensor | None, topology: Topology | None = None
) -> Tensor:
    """Return the (weighted) mean of -log p(label), as `token_loss` does of the logits ``x @ matrix.T``.

    Args:
        x: (batch, length, hidden), with sequence parallelism this rank's part of the length.
        matrix: (padded vocabulary / tp, hidden).
        labels: (batch, length).
        loss_mask: (batch, length) weights, or None.
        topology: says which slice of the vocabulary this is; None for the whole.
    """
    topology = Topology() if topology is None else topology
    targets = labels.reshape(-1)
    if loss_mask is None:
        weights = torch.full(targets.shape, 1.0 / targets.numel(), device=x.device)
    else:
        mask = loss_mask.reshape(-1).float()
        weights = mask / divisor(mask)
    slices = _Slices.of(topology, matrix)
    flat = whole_sequence(x, topology).flatten(0, 1)
    loss: Tensor = _HeadLoss.apply(flat, matrix, targets, weights, slices)  # type: ignore[no-untyped-call]
    return loss


@dataclass(frozen=True)
class _Slices:
    """The ranks that share a vocabulary."""

    group: str
    count: int
    first: int
    """Number of this rank's first token."""

    @classmethod
    def of(cls, topology: Topology, matrix: Tensor) -> _Slices | None:
        """Return the slices of a model, None where one rank has the whole vocabulary."""
        group = topology.group_name("tensor")
        if group is None:
            return None
        return cls(group, topology.tensor_size, topology.tensor_rank * matrix.shape[0])


class _HeadLoss(torch.autograd.Function):
    """Sum of ``weights * -log softmax(x @ matrix.T)[targets]`` over the tokens, with both gradients at hand.

    The gradient of ``x`` is this slice's; the sum over the slices stands before, in `whole_sequence`.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, matrix: Tensor, targets: Tensor, weights: Tensor, slices: _Slices | None
    ) -> Tensor:
        wants_gradient = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        losses = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        grad_x = torch.empty_like(x) if wants_gradient else None
        several = x.shape[0] > _TOKENS_AT_ONCE
        grad_matrix = torch.zeros_like(matrix, dtype=torch.float32) if wants_gradient and several else None
        for first in range(0, x.shape[0], _TOKENS_AT_ONCE):
            part = slice(first, first + _TOKENS_AT_ONCE)
            logits = x[part] @ matrix.t()
            if slices is None:
                _to_gradients(logits, targets[part], weights[part], losses[part])
            else:
                _to_gradients_of_slice(logits, targets[part], weights[part], losses[part], slices)
            if grad_x is not None:
                torch.mm(logits, matrix, out=grad_x[part])
                product = logits.t() @ x[part]
                grad_matrix = product if grad_matrix is None else grad_matrix.add_(product)
        if grad_x is not None:
            assert grad_matrix is not None
            ctx.save_for_backward(grad_x, grad_matrix.to(matrix.dtype))
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_x, grad_matrix = ctx.saved_tensors
        # Not 1: accumulation divides the loss by its number of micro-batches.
        return grad_x * grad.to(grad_x.dtype), grad_matrix * grad.to(grad_matrix.dtype), None, None, None


def _to_gradients(logits: Tensor, targets: Tensor, weights: Tensor, losses: Tensor) -> None:
    """Write the losses of tokens, and into ``logits`` (tokens, vocabulary) the gradients of the logits."""
    if logits.is_cuda:
        from neoxlite.model.triton_loss import to_gradients

        to_gradients(logits, targets, weights, losses)
        return
    log_p = logits.float().log_softmax(dim=-1)
    losses.copy_(-log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1) * weights)
    _write(logits, log_p.exp_(), targets, weights)


def _to_gradients_of_slice(logits: Tensor, targets: Tensor, weights: Tensor, losses: Tensor, slices: _Slices) -> None:
    """Do the same with a slice of the vocabulary; all its ranks call it together."""
    local = targets - slices.first
    own = _log_sum_and_target(logits, local)
    everyone = finished(start_gather(own, slices.count, slices.group)).view(slices.count, 2, -1)
    log_sums, at_target = everyone[:, 0].logsumexp(dim=0), everyone[:, 1].sum(dim=0)
    losses.copy_((log_sums - at_target) * weights)
    if logits.is_cuda:
        from neoxlite.model.triton_loss import write_gradients

        write_gradients(logits, local, weights, log_sums)
        return
    _write(logits, (logits.float() - log_sums.unsqueeze(-1)).exp_(), local, weights)


def _log_sum_and_target(logits: Tensor, local: Tensor) -> Tensor:
    """Return (2, tokens) fp32: the log of the slice's sum of exponentials, and the target's logit, elsewhere 0."""
    if logits.is_cuda:
        from neoxlite.model.triton_loss import log_sum_and_target

        return log_sum_and_target(logits, local)
    here = (local >= 0) & (local < logits.shape[-1])
    at_target = logits.gather(-1, local.where(here, 0).unsqueeze(-1)).squeeze(-1).float().where(here, 0)
    return torch.stack([logits.float().logsumexp(dim=-1), at_target])


def _write(logits: Tensor, probabilities: Tensor, targets: Tensor, weights: Tensor) -> None:
    """Write the gradients into ``logits``; a target outside of its columns is another slice's."""
    here = (targets >= 0) & (targets < logits.shape[-1])
    less = -here.to(probabilities.dtype).unsqueeze(-1)
    probabilities.scatter_add_(-1, targets.where(here, 0).unsqueeze(-1), less)
    logits.copy_(probabilities.mul_(weights.unsqueeze(-1)))
