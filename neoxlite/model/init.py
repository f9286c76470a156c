"""Initial weights that do not depend on the layout.

Every parameter's full matrix is drawn on the CPU in fp32 from a generator of its own, seeded by (seed, parameter name),
and then sliced. So one GPU, sixteen, or any tensor or pipeline split start from the same model, and no rank holds more
than its own part of it and a few full matrices.
"""

from __future__ import annotations

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from neoxlite.errors import ConfigError
from neoxlite.model.naming import layer_parameters
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.sharding import set_value, shape_of
from neoxlite.parallel.slicing import slicing_of
from neoxlite.parallel.topology import Topology

_AT_ONCE = 4
"""Matrices that are drawn at a time, each with a generator and in memory of its own."""
# Matrices that write into the residual stream; they take output_layer_init_method.
_OUTPUT_MATRICES = ("attention.dense.weight", "mlp.linear2.weight")


def initialise(model: nn.Module, spec: ModelSpec, seed: int, topology: Topology | None = None) -> None:
    """Fill the parameters of ``model``, whose names begin with the layer's index, in place."""
    topology = topology if topology is not None else Topology()

    def fill(named: tuple[str, Any]) -> None:
        name, parameter = named
        slicing = slicing_of(parameter)
        shape = shape_of(parameter) if slicing is None else slicing.full_shape
        value = initial_value(name, shape, spec, seed)
        if slicing is not None:
            value = slicing.take(value, topology.tensor_rank, topology.tensor_size)
        set_value(parameter, value, topology)

    # One generator draws on one core only: 6 s of a start for 1.4 billion numbers.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(fill, layer_parameters(model)))


def initial_value(name: str, shape: tuple[int, ...], spec: ModelSpec, seed: int) -> Tensor:
    """Return the full fp32 initial value of the parameter ``name``: biases 0, norms 1, matrices by their method."""
    if name.endswith(".bias"):
        return torch.zeros(shape)
    if len(shape) == 1:
        return torch.ones(shape)
    method = spec.output_layer_init_method if name.endswith(_OUTPUT_MATRICES) else spec.init_method
    generator = torch.Generator().manual_seed(_seed_of(name, seed))
    return _draw(method, shape, spec, generator)


def _seed_of(name: str, seed: int) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def normal_std(method: str, spec: ModelSpec) -> float | None:
    """Return the standard deviation of a normal method, None for the others (GPT-NeoX model/init_functions.py)."""
    layers, hidden, std = spec.num_layers, spec.hidden_size, spec.init_method_std
    return {
        "normal": std,
        "scaled_normal": std / math.sqrt(2 * layers),
        "single_residual_scaled_normal": std / math.sqrt(layers),
        "small_init": math.sqrt(2 / (5 * hidden)),
        "wang_init": 2 / layers / math.sqrt(hidden),
    }.get(method)


def _draw(method: str, shape: tuple[int, ...], spec: ModelSpec, generator: torch.Generator) -> Tensor:
    std = normal_std(method, spec)
    value = torch.empty(shape)
    if std is not None:
        return value.normal_(0.0, std, generator=generator)
    if method == "xavier_uniform":
        return nn.init.xavier_uniform_(value, generator=generator)
    if method == "xavier_normal":
        return nn.init.xavier_normal_(value, generator=generator)
    if method == "orthogonal":
        return nn.init.orthogonal_(value, gain=math.sqrt(2), generator=generator)
    if method == "scaled_orthogonal":
        return nn.init.orthogonal_(value, gain=math.sqrt(2 / spec.num_layers), generator=generator)
    raise ConfigError(f"init_method: {method} is unknown", hint="use normal, small_init, wang_init or scaled_normal")
