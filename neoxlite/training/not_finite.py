"""Names what first was not finite: a parameter, the output of a module, or a parameter's gradient.

A loss that is not finite says nothing of where. The iteration is run again, with its own samples and dropout and
without a step: the first module whose output is not finite has the fault inside it, for its inputs were looked at
before; where all outputs are finite, the first parameter in the backward pass whose gradient is not. The values are
read from the device module by module, which costs seconds, once.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from neoxlite.model.gpt import GPTModel
from neoxlite.model.naming import layer_parameters, layer_place
from neoxlite.parallel.sharding import is_sharded, own_shard

if TYPE_CHECKING:
    from neoxlite.training.engine import Batch, Engine

PARAMETER, OUTPUT, GRADIENT = "parameter", "output", "gradient"
LOSS = "loss"


@dataclass(frozen=True)
class Finding:
    """The first thing on a rank that is not finite."""

    kind: str
    """``parameter``, ``output`` or ``gradient``."""
    name: str
    """Of the parameter or module: ``<layer index>.<GPT-NeoX's name>``; ``loss`` for the model's own output."""
    bad: int
    """Elements that are not finite."""
    of: int
    rank: int
    stage: int
    order: int
    """When it was found on its rank."""

    def sentence(self, num_layers: int) -> str:
        """Return what and where, for a person."""
        if self.name == LOSS:
            return f"the loss itself, behind finite outputs of all layers (rank {self.rank})"
        index, _, name = self.name.partition(".")
        what = {PARAMETER: "the parameter", OUTPUT: "the output of", GRADIENT: "the gradient of"}[self.kind]
        place = layer_place(int(index), num_layers)
        thing = f"{what} {name} in {place}" if name else f"{what} {place}"
        return f"{thing}: {self.bad:,} of {self.of:,} values are not finite (rank {self.rank})"


def first_not_finite(engine: Engine, batches: Sequence[Batch], iteration: int) -> Finding | None:
    """Run ``iteration`` again on its micro-batches and return the first finding of all ranks, which call this together.

    Nothing that training goes on with is changed.
    """
    found = _in_parameters(engine) or _in_a_pass(engine, batches, iteration)
    findings: list[Finding | None] = [found]
    world_size = engine.topology.grid.world_size
    if world_size > 1:
        findings = [None] * world_size
        dist.all_gather_object(findings, found)
    return min((one for one in findings if one is not None), key=_place, default=None)


def _place(found: Finding) -> tuple[int, int, int, int]:
    """Return what sorts findings by cause and effect: stages forward, or backward for gradients."""
    stage = -found.stage if found.kind == GRADIENT else found.stage
    return (PARAMETER, OUTPUT, GRADIENT).index(found.kind), stage, found.order, found.rank


def _in_parameters(engine: Engine) -> Finding | None:
    """Look at the weights, in the order of the layers; of a spread one, at this rank's part."""
    for order, (name, parameter) in enumerate(layer_parameters(engine.module)):
        values = own_shard(parameter, engine.topology)[1] if is_sharded(parameter) else parameter.detach()
        if bad := _bad(values):
            return _finding(engine, PARAMETER, name, bad, values.numel(), order)
    return None


def _in_a_pass(engine: Engine, batches: Sequence[Batch], iteration: int) -> Finding | None:
    """Run the iteration again and look at outputs and gradients as they come."""
    outputs: list[Finding] = []
    gradients: list[Finding] = []

    seen = itertools.count()  # ranks run the same modules in the same order, so that their numbers compare

    def look_at_output(name: str, module: nn.Module, args: Any, output: Any) -> None:
        order = next(seen)
        for value in output if isinstance(output, tuple) else (output,):
            if not outputs and isinstance(value, Tensor) and value.is_floating_point() and (bad := _bad(value)):
                outputs.append(_finding(engine, OUTPUT, name, bad, value.numel(), order))

    def look_at_gradient(name: str, gradient: Tensor) -> None:
        order = next(seen)
        if not gradients and (bad := _bad(gradient)):
            gradients.append(_finding(engine, GRADIENT, name, bad, gradient.numel(), order))

    with contextlib.ExitStack() as hooks:
        if any(module._compiled_call_impl is not None for module in engine.module.modules()):
            # Compiled code has no place for hooks.
            hooks.enter_context(torch.compiler.set_stance("force_eager"))
        for name, module in _modules(engine.module):
            hooks.enter_context(_removed(module.register_forward_hook(partial(look_at_output, name))))
        for name, parameter in layer_parameters(engine.module):
            hook: Any = partial(look_at_gradient, name)
            hooks.enter_context(_removed(parameter.register_hook(hook)))  # type: ignore[no-untyped-call]
        engine.replay(batches, iteration)
    return next(iter(outputs + gradients), None)


@contextlib.contextmanager
def _removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


def _modules(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers and what is in them by name; containers come after their contents in a forward pass."""
    if isinstance(module, GPTModel):
        yield LOSS, module
    for name, child in module.named_modules():
        name = name.removeprefix("tied_modules.")
        index, dot, rest = name.partition(".")
        if index == "embed":  # shared with the head; DeepSpeed's name
            index = "0"
        if index.isdigit():
            yield f"{index}{dot}{rest}", child


def _bad(values: Tensor) -> int:
    """Return how many values are not finite; waits for the device."""
    return values.numel() - int(torch.isfinite(values.detach()).sum())


def _finding(engine: Engine, kind: str, name: str, bad: int, of: int, order: int) -> Finding:
    return Finding(kind, name, bad, of, engine.topology.rank, engine.topology.pipeline_rank, order)
