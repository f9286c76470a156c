"""Parameters whose elements ZeRO stage 3 spreads over the replicas, read and written without DeepSpeed's hooks.

Such a parameter keeps a flat shard, ``ds_tensor``: the elements from rank x shard length on, padded at the end so that
all shards are alike. Small parameters are whole besides, on every rank. Without stage 3 a parameter is just itself.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from neoxlite.parallel.topology import Topology


def is_sharded(parameter: Tensor) -> bool:
    """Tell whether ZeRO stage 3 has spread ``parameter``."""
    return getattr(parameter, "ds_tensor", None) is not None


def shape_of(parameter: Any) -> tuple[int, ...]:
    """Return the parameter's shape, which a spread parameter does not show."""
    return tuple(parameter.ds_shape if is_sharded(parameter) else parameter.shape)


def own_shard(parameter: Any, topology: Topology) -> tuple[int, Tensor]:
    """Return (first element, live 1-D view) of this rank's part of a spread parameter, without the padding."""
    shard: Tensor = parameter.ds_tensor.detach()
    start = topology.data_rank * shard.numel()
    return start, shard[: max(0, min(shard.numel(), int(parameter.ds_numel) - start))]


def value_of(parameter: Any, topology: Topology) -> Tensor:
    """Return the value; a spread parameter's replicas must call this together."""
    if not is_sharded(parameter):
        return parameter.detach()  # type: ignore[no-any-return]
    shard = parameter.ds_tensor.detach().contiguous()
    group = topology.get_data_parallel_group() if topology.data_size > 1 else None
    shards = [shard]
    if group is not None:
        shards = [torch.empty_like(shard) for _ in range(topology.data_size)]
        dist.all_gather(shards, shard, group=group)
    return torch.cat(shards)[: int(parameter.ds_numel)].view(shape_of(parameter))


def set_value(parameter: Any, value: Tensor, topology: Topology) -> None:
    """Copy ``value``, which every replica has, into the parameter."""
    with torch.no_grad():
        if is_sharded(parameter):
            start, shard = own_shard(parameter, topology)
            shard.copy_(value.reshape(-1)[start : start + shard.numel()])
        if not is_sharded(parameter) or parameter.data.numel() == value.numel():
            parameter.data.copy_(value)
