"""Triton kernel of `neoxlite.model.head_loss`: cross entropy and its gradient, in the place of the logits."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 8192


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _kernel(logits, targets, weights, losses, stride, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * stride
    target = tl.load(targets + token)
    weight = tl.load(weights + token)
    largest = -float("inf")
    total = 0.0
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(row + i, mask=i < size, other=-float("inf")).to(tl.float32)
        new = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), 0)
        largest = new
    log_sum = largest + tl.log(total)
    tl.store(losses + token, (log_sum - tl.load(row + target).to(tl.float32)) * weight)
    tl.debug_barrier()  # the target's logit is read before its place is written
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(row + i, mask=i < size, other=-float("inf")).to(tl.float32)
        p = tl.exp(x - log_sum)
        gradient = tl.where(i == target, p - 1.0, p) * weight
        tl.store(row + i, gradient.to(logits.dtype.element_ty), mask=i < size)


def to_gradients(logits: Tensor, targets: Tensor, weights: Tensor, losses: Tensor) -> None:
    """Write the losses of tokens, and into ``logits`` (tokens, vocabulary) the gradients of the logits."""
    tokens, size = logits.shape
    _kernel[(tokens,)](logits, targets, weights, losses, logits.stride(0), size, BLOCK=_BLOCK, num_warps=16)
