"""The optimizer's state as named pieces of parameters, whatever ZeRO stage holds it.

Under ZeRO a rank holds a flat slice of all parameters, which cuts some of them in two; without ZeRO it holds them all.
Both are seen here as fragments: this parameter, from this flat element on, these views of master weight and moments. So
a checkpoint of one layout can be read in another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neoxlite.model.naming import is_copy, layer_parameters
from neoxlite.parallel.sharding import own_shard
from neoxlite.parallel.slicing import Slicing, slicing_of
from neoxlite.parallel.topology import Topology

MOMENTS = ("exp_avg", "exp_avg_sq")
MASTER = "master"


@dataclass(frozen=True)
class Fragment:
    """Elements ``start`` to ``start + numel`` of the flattened parameter ``name``; the tensors are live 1-D views."""

    name: str
    start: int
    tensors: dict[str, Tensor]
    """Views by kind: ``exp_avg``, ``exp_avg_sq`` and, where the model's weights are not fp32, ``master``."""
    parameter: Tensor
    """The same elements of the model's own weights."""

    slicing: Slicing | None = None
    """How the parameter is sliced over the tensor-parallel ranks, of whose slice these are elements."""

    copied: bool = False
    """Whether another pipeline stage owns the parameter and this one follows it."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.parameter.numel()

    def elements_of(self, whole: Tensor, topology: Topology) -> Tensor:
        """Return these elements out of the whole parameter, or of another tensor of its shape."""
        mine = whole
        if self.slicing is not None:
            mine = self.slicing.take(whole, topology.tensor_rank, topology.tensor_size)
        return mine.reshape(-1)[self.start : self.start + self.numel]

    @property
    def layer(self) -> int:
        """Index in the layer list."""
        return int(self.name.split(".", 1)[0])


class OptimizerState:
    """The fragments on this rank and the count of steps taken."""

    def __init__(self, engine: Any):
        self._engine = engine
        zero = engine.optimizer
        self._zero: Any = zero if engine.zero_stage > 0 else None
        self._torch: torch.optim.Optimizer = zero.optimizer if engine.zero_stage > 0 else zero

    def fragments(self) -> Iterator[Fragment]:
        """Yield this rank's fragments, allocating the moments if no step has been taken yet."""
        self._allocate()
        for name, parameter in layer_parameters(self._engine.module):
            found = self._of_parameter(parameter)
            if found is not None:
                start, elements, tensors = found
                yield Fragment(name, start, tensors, elements, slicing_of(parameter), is_copy(parameter))

    def _of_parameter(self, parameter: Any) -> tuple[int, Tensor, dict[str, Tensor]] | None:
        """Return first element, the weights and the state of this rank's part of a parameter; None for no part."""
        if self._zero is None:
            state = self._torch.state[parameter]
            return 0, parameter.detach().view(-1), {kind: state[kind].view(-1) for kind in MOMENTS}
        if self._engine.zero_stage == 3:
            start, shard = own_shard(parameter, self._engine.topology)
            group, offset, _ = self._zero.grad_position[self._zero.get_param_id(parameter)]
            partition = self._zero.fp32_partitioned_groups_flat[group]
            return (start, shard, self._stretch(partition, offset, shard.numel())) if shard.numel() else None
        mapping = parameter._hp_mapping
        if mapping is None:
            return None
        # Not by DeepSpeed's own links to the moments: it makes them after the first group's step, when the other
        # groups have none yet.
        partition = self._torch.param_groups[mapping.param_group_index]["params"][0]
        here, there = mapping.lp_fragment_address, mapping.hp_fragment_address
        elements = parameter.detach().view(-1).narrow(0, here.start, here.numel)
        return here.start, elements, self._stretch(partition, there.start, there.numel)

    def _stretch(self, partition: Tensor, start: int, numel: int) -> dict[str, Tensor]:
        """Return views of a stretch of a flat partition: its moments and itself, the master weights."""
        state = self._torch.state[partition]
        return {
            **{kind: state[kind].narrow(0, start, numel) for kind in MOMENTS},
            MASTER: partition.detach().narrow(0, start, numel),
        }

    @property
    def step(self) -> int:
        """Number of steps the optimizer has taken."""
        steps = {int(state["step"]) for state in self._torch.state.values() if "step" in state}
        return steps.pop() if steps else 0

    def set_step(self, step: int) -> None:
        """Set the count of steps, on which Adam's bias correction depends."""
        self._allocate()
        for state in self._torch.state.values():
            state["step"].fill_(step)

    def _allocate(self) -> None:
        """Give every tensor that the optimizer drives its state, as AdamW's own first step would."""
        fused = bool(self._torch.defaults.get("fused"))
        for parameter in self._driven():
            state = self._torch.state[parameter]
            if state:
                continue
            device = parameter.device if fused else "cpu"
            state["step"] = torch.zeros((), dtype=torch.float32, device=device)
            for kind in MOMENTS:
                state[kind] = torch.zeros_like(parameter.detach(), memory_format=torch.preserve_format)

    def _driven(self) -> list[Tensor]:
        """Return the tensors that the torch optimizer steps; under stage 3 its groups hold them in a step only."""
        if self._engine.zero_stage == 3:
            return list(self._zero.fp32_partitioned_groups_flat)
        return [parameter for group in self._torch.param_groups for parameter in group["params"]]
