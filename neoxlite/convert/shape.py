"""The parameters of a model by name: shape, and how tensor parallelism slices them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from neoxlite.model.gpt import GPTModel
from neoxlite.model.naming import layer_parameters
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.slicing import slicing_of


@dataclass(frozen=True)
class Parameter:
    """One parameter; its name is ``<layer index>.<GPT-NeoX's name>``."""

    shape: tuple[int, ...]
    dim: int | None
    """Along which it is sliced; None where every rank has all of it."""
    parts: tuple[int, ...]
    """Lengths along ``dim`` of what is sliced each by itself."""
    decays: bool
    """Whether it is of GPT-NeoX's group weight_decay_params."""


def parameters_of(spec: ModelSpec) -> dict[str, Parameter]:
    """Return all parameters in the order of the layer list; nothing is allocated."""
    from neoxlite.optim.groups import parameter_groups

    with torch.device("meta"):
        model = GPTModel(spec)
    decaying = {id(parameter) for parameter in parameter_groups(model, 1.0)[0]["params"]}
    found = {}
    for name, parameter in layer_parameters(model):
        slicing = slicing_of(parameter)
        shape = tuple(parameter.shape)
        dim, parts = (slicing.dim, slicing.parts) if slicing is not None else (None, ())
        found[name] = Parameter(shape, dim, parts, id(parameter) in decaying)
    return found
