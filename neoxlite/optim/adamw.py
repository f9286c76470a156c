"""AdamW over flat partitions: one pass over master weights, moments and the model's weights, no wait for the host.

The arithmetic is that of ``torch.optim.AdamW`` (decoupled decay, bias-corrected moments in fp32). On CUDA one Triton
kernel does it, 28 bytes a parameter; elsewhere torch's own operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Partition:
    """One rank's part of a parameter group: flat tensors of one length on one device."""

    weights: Tensor
    """The model's own, in its dtype; written from the master weights."""
    master: Tensor
    """fp32."""
    exp_avg: Tensor
    """First moment, fp32."""
    exp_avg_sq: Tensor
    """Second moment, fp32."""

    def narrow(self, start: int, length: int) -> Partition:
        """Return a stretch of it."""
        tensors = (self.weights, self.master, self.exp_avg, self.exp_avg_sq)
        return Partition(*(tensor.narrow(0, start, length) for tensor in tensors))


@dataclass(frozen=True)
class Rates:
    """The numbers of one step, which is counted from 1."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    step: int

    @property
    def correction1(self) -> float:
        """Factor that corrects the first moment's bias towards zero."""
        return 1.0 / (1.0 - self.beta1**self.step)

    @property
    def correction2(self) -> float:
        """Factor that corrects the root of the second moment's bias towards zero."""
        return 1.0 / math.sqrt(1.0 - self.beta2**self.step)


def clip_coefficient(norm: Tensor, limit: float) -> Tensor:
    """Return the factor (0-dim fp32) that clips a gradient of this norm; NaN where the norm is not finite.

    A NaN makes `update` do nothing: the step is skipped on the device. ``limit`` 0 means no clipping.
    """
    factor = (limit / (norm + 1e-6)).clamp(max=1.0) if limit > 0 else torch.ones_like(norm)
    return torch.where(torch.isfinite(norm), factor, float("nan"))


def update(part: Partition, gradient: Tensor, coefficient: Tensor, rates: Rates) -> None:
    """Take a step along ``coefficient`` (0-dim fp32) times ``gradient`` (flat, of any float dtype)."""
    if part.master.is_cuda:
        from neoxlite.optim import triton_adamw

        triton_adamw.update_flat(part, gradient, coefficient, rates)
    elif not torch.isnan(coefficient):
        _update(part, gradient.float() * coefficient, rates)


def _update(part: Partition, gradient: Tensor, rates: Rates) -> None:
    part.master.mul_(1 - rates.lr * rates.weight_decay)
    part.exp_avg.lerp_(gradient, 1 - rates.beta1)
    part.exp_avg_sq.mul_(rates.beta2).addcmul_(gradient, gradient, value=1 - rates.beta2)
    denominator = (part.exp_avg_sq.sqrt() * rates.correction2).add_(rates.eps)
    part.master.addcdiv_(part.exp_avg, denominator, value=-rates.lr * rates.correction1)
    part.weights.copy_(part.master)
