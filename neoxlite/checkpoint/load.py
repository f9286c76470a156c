"""Reading a checkpoint: check the files, fill weights and optimizer state."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from neoxlite.checkpoint.manifest import Manifest, offer
from neoxlite.checkpoint.optimizer_state import MASTER, Fragment, OptimizerState
from neoxlite.checkpoint.pieces import Pieces
from neoxlite.errors import CheckpointError
from neoxlite.model.naming import is_copy, layer_parameters
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.sharding import set_value, shape_of
from neoxlite.parallel.slicing import slicing_of
from neoxlite.parallel.topology import Topology


def verify(folder: Path, manifest: Manifest, topology: Topology) -> None:
    """Check sizes and checksums, the ranks sharing the work; damage raises CheckpointError on every rank."""
    world_size = topology.grid.world_size
    damage = manifest.damage(folder, share=topology.rank, shares=world_size)
    if world_size > 1:
        gathered: list[list[str]] = [[] for _ in range(world_size)]
        dist.all_gather_object(gathered, damage)
        damage = sorted({item for items in gathered for item in items})
    if damage:
        more = f" (and {len(damage) - 1} more)" if damage[1:] else ""
        raise CheckpointError(f"{folder} is damaged: {damage[0]}{more}", hint=offer(folder))


def load_weights(folder: Path, module: nn.Module, topology: Topology | None = None) -> None:
    """Copy the weights of ``folder``, or this rank's slices of them, into the parameters of ``module``, in place.

    Raises:
        CheckpointError: names, shapes or the number of layers are not the model's, or a file cannot be read.
    """
    topology = topology if topology is not None else Topology()
    _compare_depth(folder, module)
    wanted: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, parameter in layer_parameters(module):
        index, _, local_name = name.partition(".")
        wanted[int(index)][local_name] = parameter
    for number, parameters in wanted.items():
        path = folder / f"layer_{number:02d}.safetensors"
        tensors = _read(path)
        _compare(path, parameters, tensors)
        for local_name, target in parameters.items():
            slicing, full = slicing_of(target), tensors[local_name]
            mine = full if slicing is None else slicing.take(full, topology.tensor_rank, topology.tensor_size)
            set_value(target, mine, topology)


def _compare_depth(folder: Path, module: nn.Module) -> None:
    """Refuse a checkpoint of another number of blocks, whose files would be missing or be other layers."""
    files = Manifest.read(folder).files
    # Blocks are layers 2 to N + 1 of GPT-NeoX's list; N + 2 has no parameters.
    blocks = next(count for count in itertools.count() if f"layer_{count + 2:02d}.safetensors" not in files)
    wanted = cast(ModelSpec, module.spec).num_layers
    if blocks != wanted:
        raise CheckpointError(
            f"{folder} has {blocks} layers, this configuration {wanted}",
            hint=f"set num_layers: {blocks}",
            exit_code=2,
        )


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", hint=offer(path.parent)) from None


def _compare(path: Path, parameters: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
    other = "it is the checkpoint of another model: compare its config.yml with this configuration"
    # The last pipeline stage has a copy of a tied embedding's matrix, and nothing else of its layer.
    alone = all(is_copy(parameter) for parameter in parameters.values())
    for name in sorted(parameters.keys() - tensors.keys() if alone else parameters.keys() ^ tensors.keys()):
        whose = "this model" if name in parameters else "the checkpoint"
        raise CheckpointError(f"{path}: only {whose} has the parameter {name}", hint=other, exit_code=2)
    for name, parameter in parameters.items():
        slicing = slicing_of(parameter)
        shape = list(shape_of(parameter) if slicing is None else slicing.full_shape)
        if list(tensors[name].shape) != shape:
            raise CheckpointError(
                f"{path}: {name} has the shape {list(tensors[name].shape)}, this model's {shape}",
                hint=other,
                exit_code=2,
            )


def load_optimizer(folder: Path, engine: Any, step: int) -> None:
    """Fill this rank's optimizer state from the pieces that any layout wrote, and set the count of steps."""
    state = OptimizerState(engine)
    pieces = Pieces(folder, Manifest.read(folder).files)
    with torch.no_grad():
        for fragment in state.fragments():
            for kind, target in fragment.tensors.items():
                if kind == MASTER and not pieces.has(MASTER, fragment.name):
                    target.copy_(_weight(folder, fragment, engine.topology))
                else:
                    pieces.fill(kind, fragment, target, engine.topology)
    state.set_step(step)


def load_master_weights(folder: Path, engine: Any) -> None:
    """Take the fp32 master weights from the weights in the files, which may be more exact than the model's own."""
    with torch.no_grad():
        for fragment in OptimizerState(engine).fragments():
            if MASTER in fragment.tensors:
                fragment.tensors[MASTER].copy_(_weight(folder, fragment, engine.topology))


def _weight(folder: Path, fragment: Fragment, topology: Topology) -> Tensor:
    """Return a fragment's elements of the weights in the files."""
    path = folder / f"layer_{fragment.layer:02d}.safetensors"
    try:
        with safe_open(path, framework="pt") as file:
            whole = file.get_tensor(fragment.name.partition(".")[2])
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", hint=offer(folder)) from None
    return fragment.elements_of(whole, topology)
