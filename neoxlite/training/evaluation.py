"""Loss on held-out data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn

from neoxlite.parallel.topology import Topology


def mean_loss(
    module: nn.Module,
    loss_of: Callable[[npt.NDArray[np.int64]], Tensor],
    batches: Iterator[npt.NDArray[np.int64]],
    count: int,
    topology: Topology,
) -> float:
    """Return the mean loss in nats over ``count`` micro-batches of every replica, with dropout off.

    Args:
        loss_of: mean loss of one micro-batch (fp32 scalar on the device).
    """
    was_training = module.training
    module.eval()
    try:
        losses = torch.stack([loss_of(next(batches)) for _ in range(count)])
    finally:
        module.train(was_training)
    return mean_over_replicas(losses.mean(), topology).item()


def mean_over_replicas(values: Tensor, topology: Topology) -> Tensor:
    """Return the elementwise mean over the data-parallel ranks; every one of them must call this."""
    group = topology.group("data")
    if group is None:
        return values
    values = values.clone()
    dist.all_reduce(values, group=group)
    return values / topology.data_size
