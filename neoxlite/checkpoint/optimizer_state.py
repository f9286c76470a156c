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
from neoxlite.parallel.slicing import Slicing, slicing_of

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

    @property
    def layer(self) -> int:
        """Index in the layer list."""
        return int(self.name.split(".", 1)[0])


class OptimizerState:
    """The fragments on this rank and the count of steps taken."""

    def __init__(self, engine: Any):
        self._engine = engine
        zero = engine.optimizer
        self._zero = zero if engine.zero_stage > 0 else None
        self._torch: torch.optim.Optimizer = zero.optimizer if engine.zero_stage > 0 else zero

    def fragments(self) -> Iterator[Fragment]:
        """Yield this rank's fragments, allocating the moments if no step has been taken yet."""
        self._allocate()
        for name, parameter in layer_parameters(self._engine.module):
            flat, sliced, copied = parameter.detach().view(-1), slicing_of(parameter), is_copy(parameter)
            if self._zero is None:
                state = self._torch.state[parameter]
                yield Fragment(name, 0, {kind: state[kind].view(-1) for kind in MOMENTS}, flat, sliced, copied)
                continue
            mapping = parameter._hp_mapping  # type: ignore[attr-defined] # DeepSpeed's
            if mapping is None:
                continue
            # Not by DeepSpeed's own links to the moments: it makes them after the first group's step, when the other
            # groups have none yet.
            partition = self._torch.param_groups[mapping.param_group_index]["params"][0]
            here, there = mapping.lp_fragment_address, mapping.hp_fragment_address
            state = self._torch.state[partition]
            tensors = {kind: state[kind].narrow(0, there.start, there.numel) for kind in MOMENTS}
            tensors[MASTER] = partition.detach().narrow(0, there.start, there.numel)
            yield Fragment(name, here.start, tensors, flat.narrow(0, here.start, here.numel), sliced, copied)

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
        for group in self._torch.param_groups:
            for parameter in group["params"]:
                state = self._torch.state[parameter]
                if state:
                    continue
                device = parameter.device if fused else "cpu"
                state["step"] = torch.zeros((), dtype=torch.float32, device=device)
                for kind in MOMENTS:
                    state[kind] = torch.zeros_like(parameter.detach(), memory_format=torch.preserve_format)
