"""Triton kernel of `neoxlite.model.head_loss`: cross entropy and its gradient, in the place of the logits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 8192


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _log_sum(row, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the log of the sum of exponentials of a row, in one pass."""
    largest = -float("inf")
    total = 0.0
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(row + i, mask=i < size, other=-float("inf")).to(tl.float32)
        new = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), 0)
        largest = new
    return largest + tl.log(total)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _write_row(row, target, weight, log_sum, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Replace a row of logits by its gradients; a target outside of the row is another slice's."""
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(row + i, mask=i < size, other=-float("inf")).to(tl.float32)
        p = tl.exp(x - log_sum)
        gradient = tl.where(i == target, p - 1.0, p) * weight
        tl.store(row + i, gradient.to(row.dtype.element_ty), mask=i < size)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _kernel(logits, targets, weights, losses, stride, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * stride
    target = tl.load(targets + token)
    weight = tl.load(weights + token)
    log_sum = _log_sum(row, size, BLOCK)
    tl.store(losses + token, (log_sum - tl.load(row + target).to(tl.float32)) * weight)
    tl.debug_barrier()  # the target's logit is read before its place is written
    _write_row(row, target, weight, log_sum, size, BLOCK)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _log_sum_and_target(logits, targets, found, tokens, stride, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * stride
    target = tl.load(targets + token)
    here = (target >= 0) & (target < size)
    tl.store(found + token, _log_sum(row, size, BLOCK))
    tl.store(found + tokens + token, tl.load(row + target, mask=here, other=0.0).to(tl.float32))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _write(logits, targets, weights, log_sums, stride, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    target, weight = tl.load(targets + token), tl.load(weights + token)
    _write_row(logits + token * stride, target, weight, tl.load(log_sums + token), size, BLOCK)


def to_gradients(logits: Tensor, targets: Tensor, weights: Tensor, losses: Tensor) -> None:
    """Write the losses of tokens, and into ``logits`` (tokens, vocabulary) the gradients of the logits."""
    tokens, size = logits.shape
    _kernel[(tokens,)](logits, targets, weights, losses, logits.stride(0), size, BLOCK=_BLOCK, num_warps=16)


def log_sum_and_target(logits: Tensor, targets: Tensor) -> Tensor:
    """Return (2, tokens) fp32: the log of a row's sum of exponentials, and the target's logit, 0 outside of the row."""
    tokens, size = logits.shape
    found = torch.empty(2, tokens, dtype=torch.float32, device=logits.device)
    _log_sum_and_target[(tokens,)](logits, targets, found, tokens, logits.stride(0), size, BLOCK=_BLOCK, num_warps=16)
    return found


def write_gradients(logits: Tensor, targets: Tensor, weights: Tensor, log_sums: Tensor) -> None:
    """Replace ``logits`` (tokens, vocabulary) by their gradients, given the log of all slices' exponentials' sum."""
    tokens, size = logits.shape
    _write[(tokens,)](logits, targets, weights, log_sums, logits.stride(0), size, BLOCK=_BLOCK, num_warps=16)
