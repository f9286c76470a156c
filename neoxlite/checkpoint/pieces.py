"""The optimizer state in a checkpoint's files: flat pieces of named parameters, written by any layout.

A piece is a 1-D tensor under the key ``kind/parameter/start``: the elements from ``start`` on of the flattened
parameter; or, where tensor parallelism sliced the parameter, ``kind/parameter/start/rank/size``: of the flattened slice
of that rank of so many.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from neoxlite.checkpoint.manifest import offer
from neoxlite.checkpoint.optimizer_state import Fragment
from neoxlite.errors import CheckpointError
from neoxlite.parallel.topology import Topology

_FILE = re.compile(r"optimizer_[0-9-]+\.safetensors")


def piece_key(kind: str, fragment: Fragment, topology: Topology) -> str:
    """Return the key under which a rank writes ``fragment``."""
    key = f"{kind}/{fragment.name}/{fragment.start}"
    sliced = fragment.slicing is not None and topology.tensor_size > 1
    return f"{key}/{topology.tensor_rank}/{topology.tensor_size}" if sliced else key


def optimizer_files(files: Iterable[str]) -> list[str]:
    """Return those of a checkpoint's files that hold pieces, in their order."""
    return sorted(name for name in files if _FILE.fullmatch(name))


@dataclass(frozen=True)
class Piece:
    """Elements ``first`` to ``end`` of the flattened slice ``rank`` of ``size`` of a parameter."""

    first: int
    end: int
    rank: int
    size: int
    path: Path
    key: str


class Pieces:
    """All pieces of a checkpoint, known from the files' headers. Raises CheckpointError for one that cannot be read.

    Args:
        files: names of the checkpoint's files; what else lies in its folder is not of it.
    """

    def __init__(self, folder: Path, files: Iterable[str]):
        self._folder = folder
        self._pieces: dict[tuple[str, str], list[Piece]] = defaultdict(list)
        for file in optimizer_files(files):
            path = folder / file
            for key, length in _lengths(path).items():
                kind, name, start, *of_slice = key.split("/")
                rank, size = (int(number) for number in of_slice) if of_slice else (0, 1)
                piece = Piece(int(start), int(start) + length, rank, size, path, key)
                self._pieces[kind, name].append(piece)

    def has(self, kind: str, name: str) -> bool:
        """Tell whether there is any piece of this kind of the parameter."""
        return (kind, name) in self._pieces

    def fill(self, kind: str, fragment: Fragment, target: Tensor, topology: Topology) -> None:
        """Copy the elements of ``fragment`` into ``target``, whatever slices and pieces they were written in.

        Raises:
            CheckpointError: some are missing.
        """
        pieces = self._pieces.get((kind, fragment.name), [])
        slicing, tensor_size = fragment.slicing, topology.tensor_size
        saved_size = pieces[0].size if pieces else tensor_size
        if slicing is None or saved_size == tensor_size:
            rank = 0 if slicing is None else topology.tensor_rank
            self._copy(kind, fragment.name, rank, pieces, fragment.start, target)
            return
        # Sliced otherwise: a stretch of one slice is no stretch of another, so the whole parameter is put together.
        slices = []
        for rank in range(saved_size):
            part = torch.empty(slicing.local_shape(saved_size), dtype=target.dtype)
            self._copy(kind, fragment.name, rank, pieces, 0, part.view(-1))
            slices.append(part)
        mine = slicing.take(slicing.join(slices), topology.tensor_rank, tensor_size)
        target.copy_(mine.reshape(-1)[fragment.start : fragment.start + fragment.numel])

    def _copy(self, kind: str, name: str, rank: int, pieces: list[Piece], first: int, target: Tensor) -> None:
        """Copy the elements from ``first`` on of slice ``rank`` into the flat ``target``."""
        end, filled = first + target.numel(), 0
        for piece in pieces:
            low, high = max(first, piece.first), min(end, piece.end)
            if piece.rank != rank or low >= high:
                continue
            with safe_open(piece.path, framework="pt") as file:
                part = file.get_slice(piece.key)[low - piece.first : high - piece.first]
            target[low - first : high - first].copy_(part)
            filled += high - low
        if filled != target.numel():
            raise CheckpointError(
                f"{self._folder} has {filled:,} of {target.numel():,} elements of {kind} of {name}",
                hint="it was saved without optimizer state: set no_load_optim or finetune, or load another checkpoint",
            )


def _lengths(path: Path) -> dict[str, int]:
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_slice(key).get_shape()[0] for key in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", hint=offer(path.parent)) from None
