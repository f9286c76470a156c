"""Writing a checkpoint: into a temporary folder, to the disk, then into place; ``latest`` comes last.

Every rank writes a share; rank 0 moves the folder into place when all have. A crash at any moment leaves the
checkpoints before it and at most a hidden temporary folder, which the next save removes. One run saves to a folder at a
time (`neoxlite.checkpoint.lock`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from neoxlite.checkpoint.folder import (
    LATEST,
    MANIFEST,
    Manifest,
    aside_name,
    crc32_of,
    restore_replaced,
    saved_iterations,
    step_name,
)
from neoxlite.checkpoint.optimizer_state import MASTER, Fragment, OptimizerState
from neoxlite.checkpoint.owner import Owner
from neoxlite.checkpoint.pieces import piece_key
from neoxlite.common.files import write_whole
from neoxlite.errors import CheckpointError
from neoxlite.model.naming import is_copy, layer_parameters
from neoxlite.parallel.sharding import value_of
from neoxlite.parallel.slicing import slicing_of
from neoxlite.parallel.topology import Topology


@dataclass(frozen=True)
class Contents:
    """What goes into a checkpoint besides the engine's tensors."""

    training: dict[str, Any]
    """State of training for the manifest; must hold ``iteration``."""
    texts: dict[str, bytes] = field(default_factory=dict)
    """Small files by their name in the folder."""
    with_optimizer: bool = True


def save(root: Path, engine: Any, contents: Contents, *, keep_last: int | None = None) -> Path:
    """Write a checkpoint of ``engine`` under ``root`` and return its folder; every rank calls this.

    Raises:
        CheckpointError: on every rank, if any of them cannot write. What was there before is untouched.
    """
    iteration = int(contents.training["iteration"])
    rank = engine.topology.rank
    temporary = _together(engine, lambda: _begin(root, iteration) if rank == 0 else None)[0]
    folder = root / step_name(iteration)
    try:
        shares = _together(engine, lambda: _write_share(temporary, engine, contents))
        files = {name: size for share in shares for name, size in share.items()}
        _together(engine, lambda: _finish(temporary, folder, files, contents) if rank == 0 else None)
    except CheckpointError:
        # All ranks have ended their part. On a full disk the half would keep it full.
        if rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    if rank == 0 and keep_last:
        remove_old(root, keep_last, iteration)
    return folder


def _together(engine: Any, work: Any) -> list[Any]:
    """Do ``work`` on every rank and return all results; if it fails anywhere, raise the same error everywhere."""
    try:
        result, problem = work(), None
    except (OSError, SafetensorError, CheckpointError) as error:
        result, problem = None, f"rank {engine.topology.rank}: {error}"
    if engine.topology.grid.world_size == 1:
        gathered = [(result, problem)]
    else:
        gathered = [(None, None)] * engine.topology.grid.world_size
        dist.all_gather_object(gathered, (result, problem))
    problems = [problem for _, problem in gathered if problem]
    if problems:
        raise CheckpointError(
            f"the checkpoint could not be written: {problems[0]}",
            hint="check space and quota of the folder in save; the checkpoints before it are untouched",
        )
    return [result for result, _ in gathered]


def _begin(root: Path, iteration: int) -> Path:
    """Clear away what dead runs left, and return a new temporary folder that names this process."""
    root.mkdir(parents=True, exist_ok=True)
    for folder, aside in restore_replaced(root):
        if folder.is_dir() and aside.is_dir():
            shutil.rmtree(aside)
    for leftover in root.glob(".global_step*.tmp"):
        # .global_step5.OWNER.tmp; the lock of the folder says that no other host's owner is alive.
        owner = Owner.parse(leftover.name.removesuffix(".tmp").partition(".global_step")[2].partition(".")[2])
        if owner is None or owner == Owner.this() or not owner.is_alive:
            shutil.rmtree(leftover)
    temporary = root / f".{step_name(iteration)}.{Owner.this()}.tmp"
    temporary.mkdir()
    return temporary


def _write_share(folder: Path, engine: Any, contents: Contents) -> dict[str, dict[str, int]]:
    """Write this rank's files and return their sizes and checksums."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder.parent} is not the same folder on all nodes")
    topology = engine.topology
    written = []
    for index, parameters in _parameters_by_layer(engine.module).items():
        mine = index % topology.data_size == topology.data_rank
        if not mine and engine.zero_stage < 3:
            continue
        # Layer by layer: the ranks that hold parts of one give them, and a rank whose turn it is writes.
        tensors = {name: _whole(parameter, topology) for name, parameter in parameters.items()}
        if mine and topology.tensor_rank == 0:
            written.append(_write_tensors(folder, f"layer_{index:02d}.safetensors", tensors))
    if contents.with_optimizer:
        master = engine.module_dtype != torch.float32
        for index, fragments in _fragments_by_layer(engine).items():
            name = f"optimizer_{index:02d}-{_share_name(topology)}.safetensors"
            written.append(_write_tensors(folder, name, _fragment_tensors(fragments, topology, master=master)))
    if topology.rank == 0:
        for name, data in contents.texts.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            written.append(path)
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "crc32": _to_disk(path)} for path in written
    }


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


def _write_tensors(folder: Path, name: str, tensors: dict[str, Tensor]) -> Path:
    path = folder / name
    # Copies: views of ZeRO's flat buffers share storage, which the format does not allow.
    save_file({key: tensor.to("cpu", copy=True).contiguous() for key, tensor in tensors.items()}, path)
    return path


def _to_disk(path: Path) -> int:
    """Flush a file to the disk and return its CRC-32, read back."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return crc32_of(path)


def _finish(temporary: Path, folder: Path, files: dict[str, dict[str, int]], contents: Contents) -> None:
    missing = [name for name in files if not (temporary / name).exists()]
    if missing:
        raise CheckpointError(f"{temporary / missing[0]} was written by another node but is not visible on this one")
    write_whole(temporary / MANIFEST, Manifest(files, contents.training).text())
    _sync_folder(temporary)
    root = folder.parent
    if folder.exists():
        # The same iteration again, after a resume from an older one. Between the two renames the old one is the
        # checkpoint still: `restore_replaced` gives it its name back.
        aside = root / aside_name(folder.name)
        folder.rename(aside)
        _move(temporary, folder, aside)
        shutil.rmtree(aside)
    else:
        temporary.rename(folder)
    _sync_folder(root)
    write_whole(root / LATEST, folder.name)


def _move(temporary: Path, folder: Path, aside: Path) -> None:
    """Rename ``temporary`` to ``folder``, also if a reader has just given the old one its name back; or undo all."""
    try:
        if folder.exists():
            folder.rename(aside)
        temporary.rename(folder)
    except OSError:
        with contextlib.suppress(OSError):
            aside.rename(folder)
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_old(root: Path, keep: int, newest: int) -> None:
    """Keep the ``keep`` last checkpoints up to ``newest`` and remove those before them; later ones are left alone."""
    old = [iteration for iteration in saved_iterations(root) if iteration <= newest][:-keep]
    for iteration in old:
        shutil.rmtree(root / step_name(iteration), ignore_errors=True)
