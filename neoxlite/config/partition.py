"""Which layers each pipeline stage holds, cut as DeepSpeed's ``PipelineModule`` cuts GPT-NeoX's layer list."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from neoxlite.errors import ConfigError

DEFAULT_METHOD = "type:transformer|mlp"
COUNTING = ("parameters", "flops")
"""Methods that need the weight of each layer, and so the size of the vocabulary."""


def layer_names(num_layers: int, tied: bool) -> list[str]:
    """Return the names GPT-NeoX's list of ``num_layers + 5`` layers has (megatron/model/gpt2_model.py, ``init_specs``).

    ``type:REGEX`` is matched with them; the default also hits the two helper functions around the blocks.
    """
    head = "EmbeddingPipe" if tied else "ParallelLinearPipe"
    blocks = ["ParallelTransformerLayerPipe"] * num_layers
    return ["EmbeddingPipe", "_pre_transformer_block", *blocks, "_post_transformer_block", "NormPipe", head]


def partition(method: str, names: Sequence[str], weights: Sequence[int], stages: int) -> list[int]:
    """Return ``stages + 1`` bounds: stage i holds the layers from bound i up to, not including, bound i + 1.

    Args:
        method: ``uniform``, one of `COUNTING`, or ``type:REGEX`` (case-insensitive; layers that match weigh 1, others
            0).
        names: name of each layer. weights: what a method of `COUNTING` counts, of each layer.

    Raises:
        ConfigError: another method, or fewer than one stage.
    """
    if stages < 1:
        raise ConfigError(f"{stages} pipeline stages", hint="ask for 1 or more")
    lower = method.lower()
    if lower == "uniform":
        return cut_uniform(len(names), stages)
    if lower in COUNTING:
        return cut_balanced(weights, stages)
    if lower.startswith("type:"):
        return cut_balanced([_matches(method[len("type:") :], name) for name in names], stages)
    raise ConfigError(
        f"pipe_partition_method: {method!r} is not known",
        hint=f"use uniform, parameters, flops, or {DEFAULT_METHOD}",
    )


def _matches(pattern: str, name: str) -> int:
    try:
        return int(re.search(pattern, name, re.IGNORECASE) is not None)
    except re.error as error:
        raise ConfigError(
            f"pipe_partition_method: {pattern!r} is not a regular expression: {error}", hint=f"use {DEFAULT_METHOD}"
        ) from error


def cut_uniform(layers: int, stages: int) -> list[int]:
    """Return bounds of stages that differ by at most one layer, the longer first."""
    size, longer = divmod(layers, stages)
    return [0, *itertools.accumulate(size + (stage < longer) for stage in range(stages))]


def cut_balanced(weights: Sequence[int], stages: int) -> list[int]:
    """Return bounds that make the heaviest and the lightest stage differ least.

    The dynamic program of DeepSpeed (runtime/utils.py, ``partition_balanced``): of the cuts of the first i layers into
    j stages only the best is kept, the latest cut of equal ones. So the result is DeepSpeed's, not always the optimum.
    """
    layers = len(weights)
    if layers <= stages:
        return cut_uniform(layers, stages)
    total = [0, *itertools.accumulate(weights)]
    # best[i]: (heaviest, lightest, bounds) of the first i layers in the stages so far.
    best: dict[int, tuple[float, float, list[int]]] = {0: (0, math.inf, [0])}
    for stage in range(1, stages + 1):
        best = {end: _last_cut(best, total, end) for end in range(stage, layers + 1)}
    return best[layers][2]


def _last_cut(
    best: dict[int, tuple[float, float, list[int]]], total: Sequence[int], end: int
) -> tuple[float, float, list[int]]:
    choices = []
    for cut, (heaviest, lightest, bounds) in best.items():
        if cut < end:
            weight = total[end] - total[cut]
            choices.append((max(heaviest, weight), min(lightest, weight), [*bounds, end]))
    return min(reversed(choices), key=lambda choice: choice[0] - choice[1])
