"""What follows from a configuration: layout, batch, precision, parameters, FLOPs; and every value with its origin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from neoxlite.config.keys import key_table
from neoxlite.config.neox import NeoxConfig
from neoxlite.errors import ConfigError

_T = TypeVar("_T")
_BULKY = "config_files"  # the text of the files themselves


def describe(cfg: NeoxConfig, vocab_size: int) -> dict[str, Any]:
    """Return what follows from a configuration, for programs. FLOPs are of all GPUs together."""
    padded = cfg.padded_vocab_size(vocab_size)
    tokens = cfg.train_batch_size * cfg.seq_length
    flops = _unless_uncounted(cfg.flops_per_iteration, padded)
    return {
        "files": list(cfg.config_paths),
        "world_size": cfg.world_size,
        "pipe_parallel_size": cfg.pipe_parallel_size,
        "data_parallel_size": cfg.data_parallel_size,
        "model_parallel_size": cfg.model_parallel_size,
        "pipeline_partition": _unless_uncounted(cfg.pipeline_partition, max(1, cfg.pipe_parallel_size), padded),
        "train_batch_size": cfg.train_batch_size,
        "train_micro_batch_size_per_gpu": cfg.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": cfg.gradient_accumulation_steps,
        "tokens_per_iteration": tokens,
        "train_iters": cfg.train_iters,
        "train_epochs": cfg.train_epochs,
        "precision": cfg.precision,
        "zero_stage": cfg.zero_stage,
        "zero_stage_reason": cfg.zero_stage_reason,
        "vocab_size": vocab_size,
        "padded_vocab_size": padded,
        "mlp_width": cfg.architecture.mlp_widths()[1],
        "parameters": _unless_uncounted(cfg.parameter_count, padded),
        "flops_per_iteration": flops,
        "flops_per_token": None if flops is None else flops / tokens,
        "warnings": cfg.warnings,
        "notes": cfg.notes,
        "unsupported": cfg.unsupported,
    }


def _unless_uncounted(function: Callable[..., _T], *arguments: int) -> _T | None:
    """Return the result, or None where the configuration has parts whose parameters cannot be counted."""
    try:
        return function(*arguments)
    except ConfigError:
        return None


class Resolved(NamedTuple):
    """A resolved value, and where it comes from: ``file.yml:12``, ``--set``, ``default`` or ``derived``."""

    value: Any
    source: str


def resolved(cfg: NeoxConfig) -> dict[str, Resolved]:
    """Return every key in the order of the table, those of blocks by dotted names; without the text of the files."""
    return {
        dotted: Resolved(value, cfg.source(dotted))
        for name in key_table()
        if name != _BULKY
        for dotted, value in _leaves(name, cfg.value(name))
    }


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for word, inner in value.items():
            yield from _leaves(f"{name}.{word}", inner)
    else:
        yield name, value


def short(value: Any) -> str:
    """Return a value as JSON, a list of one word as GPT-NeoX writes it: ``[[["global"], 24]]``."""
    if isinstance(value, list) and len(value) > 2 and all(item == value[0] for item in value):
        value = [[[value[0]], len(value)]]
    return json.dumps(value, ensure_ascii=False, default=str)
