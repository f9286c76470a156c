"""Which layers each pipeline stage holds, and the line that says so. Imports no torch."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from neoxlite.config.partition import cut_balanced
from neoxlite.errors import ConfigError

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig
    from neoxlite.parallel.topology import Topology

_WORTH_A_NOTE = 0.02


def stage_bounds(cfg: NeoxConfig, padded_vocab_size: int | None = None) -> list[int]:
    """Return the bounds of the configuration's stages over the layer list.

    Args:
        padded_vocab_size: needed by pipe_partition_method ``parameters`` and ``flops`` only.

    Raises:
        ConfigError: a stage would have neither a block nor the final norm and the head. DeepSpeed takes the gradient
            norm of each parameter group over all stages: one that lacks a group would wait for ever.
    """
    stages = max(1, cfg.pipe_parallel_size)
    bounds = cfg.pipeline_partition(stages, padded_vocab_size)
    bare = _first_bare(cfg, bounds)
    if bare is None:
        return bounds
    fewer = (number for number in range(stages - 1, 0, -1))
    nearest = next(
        number for number in fewer if _first_bare(cfg, cfg.pipeline_partition(number, padded_vocab_size)) is None
    )
    raise ConfigError(
        f"pipe_parallel_size: {stages} leaves stage {bare} of a model of {cfg.num_layers} blocks without a block",
        hint=f"the nearest that works: pipe_parallel_size: {nearest}",
    )


def _first_bare(cfg: NeoxConfig, bounds: list[int]) -> int | None:
    """Return the first stage without parameters of both groups, those that decay and those that do not."""
    first_behind, norm, head = cfg.num_layers + 2, cfg.num_layers + 3, cfg.num_layers + 4
    for stage, (start, stop) in enumerate(itertools.pairwise(bounds)):
        layers = set(range(start, stop))
        if not layers & set(range(2, first_behind)) and not {norm, head} <= layers:
            return stage
    return None


def balance_note(cfg: NeoxConfig, padded_vocab_size: int) -> str | None:
    """Return a line about stages of unequal work, if pipe_partition_method flops makes the pipeline 2 % faster."""
    stages = max(1, cfg.pipe_parallel_size)
    work = cfg.architecture.layer_flops(padded_vocab_size)

    def excess(bounds: list[int]) -> float:
        return max(sum(work[start:stop]) for start, stop in itertools.pairwise(bounds)) * stages / sum(work) - 1

    now, best = excess(stage_bounds(cfg, padded_vocab_size)), excess(cut_balanced(work, stages))
    if now - best < _WORTH_A_NOTE:
        return None
    return (
        f"the slowest of {stages} pipeline stages has {now:.1%} more work than their mean, and all wait for it; with "
        f"pipe_partition_method: flops it has {best:.1%} more"
    )


def stage_line(cfg: NeoxConfig, padded_vocab_size: int, topology: Topology) -> str:
    """Return DeepSpeed's line about the layers of a stage (runtime/pipe/engine.py), for the first rank of each.

    The parameters are those of the whole stage; TOTAL_PARAMS counts a tied matrix on both its stages, UNIQUE_PARAMS
    once.
    """
    start, stop = stage_bounds(cfg, padded_vocab_size)[topology.pipeline_rank :][:2]
    counts = cfg.architecture.layer_parameters(padded_vocab_size)
    if not cfg.no_weight_tying:
        counts[-1] = padded_vocab_size * cfg.hidden_size if topology.pipeline_size > 1 else 0
    unique = cfg.parameter_count(padded_vocab_size)
    numbers = {"STAGE": sum(counts[start:stop]), "TOTAL": sum(counts), "UNIQUE": unique}
    fields = " ".join(f"{name}_PARAMS={count} ({count / 1e6:0.3f}M)" for name, count in numbers.items())
    return f"RANK={topology.rank} STAGE={topology.pipeline_rank} LAYERS={stop - start} [{start}, {stop}) {fields}"
