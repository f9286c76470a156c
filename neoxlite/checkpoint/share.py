"""What one rank writes of a checkpoint: the tensors of each of its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from neoxlite.checkpoint.optimizer_state import MASTER, Fragment, OptimizerState
from neoxlite.checkpoint.pieces import piece_key
from neoxlite.model.naming import is_copy, layer_parameters
from neoxlite.parallel.sharding import value_of
from neoxlite.parallel.slicing import slicing_of
from neoxlite.parallel.topology import Topology


@dataclass(frozen=True)
class TensorFile:
    """A file to write: its name in the checkpoint's folder, and its tensors by key."""

    name: str
    tensors: dict[str, Tensor]


def share_of(engine: Any, *, with_optimizer: bool) -> Iterator[TensorFile]:
    """Yield this rank's files one after another; the tensors may be live views of the training's own.

    Every rank goes through its files to the end: ranks that hold parts of a layer give them to the one that writes it.
    """
    topology = engine.topology
    for index, parameters in _parameters_by_layer(engine.module).items():
        mine = index % topology.data_size == topology.data_rank
        if not mine and engine.zero_stage < 3:
            continue
        tensors = {name: _whole(parameter, topology) for name, parameter in parameters.items()}
        if mine and topology.tensor_rank == 0:
            yield TensorFile(f"layer_{index:02d}.safetensors", tensors)
    if with_optimizer:
        master = engine.module_dtype != torch.float32
        for index, fragments in _fragments_by_layer(engine).items():
            name = f"optimizer_{index:02d}-{_share_name(topology)}.safetensors"
            yield TensorFile(name, _fragment_tensors(fragments, topology, master=master))


def _share_name(topology: Topology) -> str:
    """Return what tells the optimizer files of one layer apart: data rank and, if there are several, tensor rank."""
    return f"{topology.data_rank:04d}" + (f"-{topology.tensor_rank:04d}" if topology.tensor_size > 1 else "")


def _parameters_by_layer(module: torch.nn.Module) -> dict[int, dict[str, Tensor]]:
    layers: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, parameter in layer_parameters(module):
        if is_copy(parameter):
            continue
        index, _, local_name = name.partition(".")
        layers[int(index)][local_name] = parameter
    return layers


def _whole(parameter: Tensor, topology: Topology) -> Tensor:
    """Return a parameter from its shards and slices on other ranks, which call this together."""
    slicing, mine = slicing_of(parameter), value_of(parameter, topology)
    if slicing is None or topology.tensor_size == 1:
        return mine
    slices = [torch.empty_like(mine) for _ in range(topology.tensor_size)]
    dist.all_gather(slices, mine.contiguous(), group=topology.group("tensor"))
    return slicing.join(slices)


def _fragments_by_layer(engine: Any) -> dict[int, list[Fragment]]:
    """Group this rank's fragments by layer; without ZeRO the replicas hold the same and share out the layers."""
    layers: dict[int, list[Fragment]] = defaultdict(list)
    replicated = engine.zero_stage == 0
    topology = engine.topology
    for fragment in OptimizerState(engine).fragments():
        if fragment.copied:
            continue
        if not replicated or fragment.layer % topology.data_size == topology.data_rank:
            layers[fragment.layer].append(fragment)
    return layers


def _fragment_tensors(fragments: list[Fragment], topology: Topology, *, master: bool) -> dict[str, Tensor]:
    """Return the tensors to write by `Piece` key; fp32 weights are their own master."""
    return {
        piece_key(kind, fragment, topology): tensor
        for fragment in fragments
        for kind, tensor in fragment.tensors.items()
        if (master or kind != MASTER) and (fragment.slicing is not None or topology.tensor_rank == 0)
    }
