"""A checkpoint of GPT-NeoX fills an engine of any layout, without a converted copy on the disk.

It is read by the code of ``convert from-neox``, parameter by parameter and in blocks of rows, with one file of the
checkpoint mapped at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from neoxlite.checkpoint.optimizer_state import MASTER, Fragment, OptimizerState
from neoxlite.convert.neox_model import NeoxModel
from neoxlite.convert.upstream import Upstream
from neoxlite.convert.weight import Weight, copy_elements, sliced
from neoxlite.errors import CheckpointError
from neoxlite.model.naming import layer_parameters
from neoxlite.parallel.sharding import is_sharded, own_shard
from neoxlite.parallel.slicing import Slicing, slicing_of
from neoxlite.parallel.topology import Topology

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


@dataclass(frozen=True)
class NeoxSource:
    """See `neoxlite.checkpoint.source.Source`."""

    model: NeoxModel

    @classmethod
    def open(cls, folder: Path, cfg: NeoxConfig) -> NeoxSource:
        """Look at the names and shapes in ``folder``.

        Raises:
            CheckpointError: files are missing, damaged, of a kind that cannot be read, or of another model.
        """
        return cls(NeoxModel.of(Upstream.open(folder), cfg))

    @cached_property
    def training(self) -> dict[str, Any]:
        """As converted, without a count of steps of its own, which `load_optimizer` reads."""
        return {**self.model.training(0), "with_optimizer": True}

    @property
    def notes(self) -> Sequence[str]:
        """What it is, and what is not taken."""
        upstream = self.model.upstream
        lost = self.model.cfg.precision == "fp16" and self.training["loss_scale"] is None
        left = "random states" + (" and loss scale" if lost else "")
        return [f"{upstream.folder} is GPT-NeoX's ({upstream.layout}), read in place; its {left} are not taken"]

    def verify(self, topology: Topology) -> None:
        """Read one share of the files from end to end: GPT-NeoX keeps no checksums of them, but its format has some."""
        upstream = self.model.upstream
        files = [*upstream.layers.values(), *upstream.slices.values(), *upstream.zero.values()]
        size = topology.grid.world_size
        problem = None
        try:
            for file in files[topology.rank :: size]:
                file.check()
        except CheckpointError as error:
            problem = error
        problems = [problem]
        if size > 1:
            problems = [None] * size
            dist.all_gather_object(problems, problem)
        for found in problems:
            if found is not None:
                raise CheckpointError(found.message, hint=found.hint, exit_code=found.exit_code)

    def load_weights(self, engine: Any) -> None:
        """Copy each parameter, or this rank's slice of it."""
        with torch.no_grad():
            for name, parameter in layer_parameters(engine.module):
                mine = _mine(self.model.weights[name], slicing_of(parameter), engine.topology)
                for first, target in _held(parameter, mine.numel, engine.topology):
                    copy_elements(mine, first, target)

    def load_optimizer(self, engine: Any) -> None:
        """Copy each fragment out of the whole state; master weights that are not there are the weights themselves."""
        state, step = self.model.optimizer()
        target = OptimizerState(engine)
        with torch.no_grad():
            for fragment in target.fragments():
                kinds = {MASTER: self.model.weights[fragment.name], **state[fragment.name]}
                for kind, tensor in fragment.tensors.items():
                    _fill(tensor, kinds[kind], fragment, engine.topology)
        target.set_step(step or self.training["optimizer_step"])

    def load_master_weights(self, engine: Any) -> None:
        """Copy each fragment out of the weights."""
        with torch.no_grad():
            for fragment in OptimizerState(engine).fragments():
                if MASTER in fragment.tensors:
                    _fill(fragment.tensors[MASTER], self.model.weights[fragment.name], fragment, engine.topology)


def _fill(tensor: Tensor, whole: Weight, fragment: Fragment, topology: Topology) -> None:
    """Copy the elements of a fragment out of the whole tensor."""
    copy_elements(_mine(whole, fragment.slicing, topology), fragment.start, tensor)


def _mine(whole: Weight, slicing: Slicing | None, topology: Topology) -> Weight:
    """Return this tensor-parallel rank's slice of a parameter."""
    if slicing is None:
        return whole
    return sliced(whole, slicing.dim, slicing.parts, topology.tensor_rank, topology.tensor_size)


def _held(parameter: Any, numel: int, topology: Topology) -> Iterator[tuple[int, Tensor]]:
    """Yield (first element, flat view) of what this rank holds of a parameter: a shard, all of it, or both."""
    if is_sharded(parameter):
        yield own_shard(parameter, topology)
    if parameter.data.numel() == numel:
        yield 0, parameter.data.view(-1)
