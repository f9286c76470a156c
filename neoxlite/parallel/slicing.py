"""Parameters that are sliced over the tensor-parallel ranks, and the way between slice and whole."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from neoxlite.errors import ConfigError
from neoxlite.parallel.topology import Topology


@dataclass(frozen=True)
class Slicing:
    """How a parameter is sliced: along ``dim``, each of its parts by itself.

    Most matrices are one part. Matrices that stack several things (value and gate, or queries, keys and values) have
    one part each, so that a rank gets its share of every one of them.
    """

    full_shape: tuple[int, ...]
    dim: int
    parts: tuple[int, ...]
    """Lengths along ``dim``; their sum is the full length."""

    def take(self, full: Tensor, rank: int, size: int) -> Tensor:
        """Return the slice of ``full`` that belongs to ``rank`` of ``size``; a view where it can be."""
        if size == 1:
            return full
        if len(self.parts) == 1:
            return full.chunk(size, self.dim)[rank]
        return torch.cat(
            [part.chunk(size, self.dim)[rank] for part in torch.split(full, list(self.parts), self.dim)], self.dim
        )

    def join(self, slices: Sequence[Tensor]) -> Tensor:
        """Return the whole from the slices of all ranks, in their order; the inverse of `take`."""
        if len(self.parts) == 1:
            return torch.cat(list(slices), self.dim)
        lengths = [part // len(slices) for part in self.parts]
        pieces = [torch.split(slice_, lengths, self.dim) for slice_ in slices]
        return torch.cat(list(itertools.chain(*zip(*pieces, strict=True))), self.dim)

    def local_shape(self, size: int) -> tuple[int, ...]:
        """Return the shape of one of ``size`` slices."""
        shape = list(self.full_shape)
        shape[self.dim] //= size
        return tuple(shape)


def sliced_parameter(
    full_shape: tuple[int, ...], dim: int, topology: Topology, what: str, parts: tuple[int, ...] | None = None
) -> nn.Parameter:
    """Return this rank's uninitialised slice along ``dim`` of a parameter of ``full_shape``.

    It carries its `Slicing`, so that initialisation and checkpoints see the whole parameter whatever the layout. A
    parameter without one is the same on every rank.

    Raises:
        ConfigError: a part cannot be shared out evenly.
    """
    size = topology.tensor_size
    parts = (full_shape[dim],) if parts is None else parts
    if any(part % size for part in parts):
        raise ConfigError(
            f"{what}: {full_shape[dim]} rows or columns cannot be sliced over model_parallel_size {size}",
            hint="choose a model_parallel_size that divides it",
        )
    slicing = Slicing(full_shape, dim, parts)
    parameter = nn.Parameter(torch.empty(slicing.local_shape(size)))
    parameter.slicing = slicing  # type: ignore[attr-defined]
    if size > 1:
        parameter.model_parallel = True  # type: ignore[attr-defined] # DeepSpeed's norm counts it on every rank
    return parameter


def slicing_of(parameter: Tensor) -> Slicing | None:
    """Return how ``parameter`` is sliced, None for one that every tensor-parallel rank has whole."""
    return getattr(parameter, "slicing", None)
