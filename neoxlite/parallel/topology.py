"""The process grid: pipeline x data x tensor parallel, and the process groups along its axes.

Rank order is GPT-NeoX's (megatron/initialize.py): pipeline outermost, data in the middle, tensor innermost, so that the
ranks which talk most share a node. `Grid` is arithmetic only; `Topology` adds the groups and the method names by which
DeepSpeed asks for them (its ``mpu`` argument).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Grid:
    """Sizes of the three axes and the position of each rank on them."""

    pipeline: int = 1
    data: int = 1
    tensor: int = 1

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.pipeline * self.data * self.tensor

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Return (pipeline, data, tensor) of ``rank``. Raises IndexError outside the grid."""
        if not 0 <= rank < self.world_size:
            raise IndexError(f"rank {rank} is outside a grid of {self.world_size}")
        rest, tensor = divmod(rank, self.tensor)
        pipeline, data = divmod(rest, self.data)
        return pipeline, data, tensor

    def rank(self, pipeline: int, data: int, tensor: int) -> int:
        """Return the rank at a position; the inverse of `coordinates`."""
        return (pipeline * self.data + data) * self.tensor + tensor

    def lines(self, axis: str) -> list[list[int]]:
        """Return the rank lists of all groups along ``axis``: "pipeline", "data" or "tensor"."""
        groups: dict[tuple[int, ...], list[int]] = {}
        index = ("pipeline", "data", "tensor").index(axis)
        for rank in range(self.world_size):
            position = self.coordinates(rank)
            groups.setdefault(position[:index] + position[index + 1 :], []).append(rank)
        return list(groups.values())


class Topology:
    """This process's place in the grid and its process groups; a group of None stands for one process alone.

    DeepSpeed's engine takes it as ``mpu``: it calls the ``get_*`` methods. "Model parallel" is its word for tensor
    parallel.
    """

    def __init__(
        self,
        grid: Grid | None = None,
        rank: int = 0,
        groups: dict[str, ProcessGroup | None] | None = None,
        *,
        sequence_parallel: bool = False,
    ):
        self.grid = grid if grid is not None else Grid()
        self.rank = rank
        self.pipeline_rank, self.data_rank, self.tensor_rank = self.grid.coordinates(rank)
        self._groups = groups if groups is not None else {}
        self._names = {axis: group.group_name for axis, group in self._groups.items() if group is not None}
        self.sequence_parallel = sequence_parallel and self.grid.tensor > 1
        """Whether each tensor-parallel rank has its part of the sequence between the sliced matrices."""

    @property
    def data_size(self) -> int:
        """Number of model replicas."""
        return self.grid.data

    @property
    def pipeline_size(self) -> int:
        """Number of pipeline stages."""
        return self.grid.pipeline

    @property
    def tensor_size(self) -> int:
        """Number of ranks over which each matrix is sliced."""
        return self.grid.tensor

    @property
    def sequence_part(self) -> tuple[int, int]:
        """Which part of the sequence this rank has between the sliced matrices: (number, of how many)."""
        return (self.tensor_rank, self.tensor_size) if self.sequence_parallel else (0, 1)

    def group(self, axis: str) -> ProcessGroup | None:
        """Return this rank's group along "pipeline", "data" or "tensor"; None if it is alone there."""
        return self._groups.get(axis) if getattr(self.grid, axis) > 1 else None

    def group_name(self, axis: str) -> str | None:
        """Return the name by which operations of a compiled graph know `group`; None if this rank is alone there."""
        return self._names.get(axis) if getattr(self.grid, axis) > 1 else None

    def get_data_parallel_rank(self) -> int:
        """Rank among the model replicas."""
        return self.data_rank

    def get_data_parallel_world_size(self) -> int:
        """Number of model replicas."""
        return self.grid.data

    def get_data_parallel_group(self) -> ProcessGroup | None:
        """Group over which gradients are averaged."""
        return self._groups.get("data")

    def get_model_parallel_rank(self) -> int:
        """Rank among the slices of a matrix."""
        return self.tensor_rank

    def get_model_parallel_world_size(self) -> int:
        """Number of slices of a matrix."""
        return self.grid.tensor

    def get_model_parallel_group(self) -> ProcessGroup | None:
        """Group whose ranks hold one model replica's slices."""
        return self.group("tensor")

    get_tensor_model_parallel_rank = get_model_parallel_rank
    get_tensor_model_parallel_world_size = get_model_parallel_world_size
    get_tensor_model_parallel_group = get_model_parallel_group


def create_topology(grid: Grid, rank: int, *, sequence_parallel: bool = False) -> Topology:
    """Make the process groups of ``grid``; every rank of the initialised world must call this together."""
    import torch.distributed as dist

    groups: dict[str, ProcessGroup | None] = {}
    for axis in ("pipeline", "data", "tensor"):
        for ranks in grid.lines(axis):
            # DeepSpeed wants a data-parallel group of a tensor-parallel rank even if it is alone in it.
            if len(ranks) == 1 and not (axis == "data" and grid.tensor > 1):
                continue
            group = dist.group.WORLD if len(ranks) == grid.world_size else dist.new_group(ranks)
            if rank in ranks:
                groups[axis] = group
    return Topology(grid, rank, groups, sequence_parallel=sequence_parallel)
