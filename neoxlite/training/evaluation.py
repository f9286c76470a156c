"""Means over the replicas of a model."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from neoxlite.parallel.topology import Topology


def mean_over_replicas(values: Tensor, topology: Topology) -> Tensor:
    """Return the elementwise mean over the data-parallel ranks; every one of them must call this."""
    group = topology.group("data")
    if group is None:
        return values
    values = values.clone()
    dist.all_reduce(values, group=group)
    return values / topology.data_size
