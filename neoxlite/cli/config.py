"""``neoxlite config``: a configuration as it will be used, before a GPU hour is spent on it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from neoxlite.config import ConfigError, NeoxConfig, load_config, parse_assignments

_GPT2_VOCAB_SIZE = 50257
_T = TypeVar("_T")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("-d", "--conf-dir", type=click.Path(path_type=Path), help="Folder that every file name is relative to.")
@click.option(
    "--world-size",
    type=click.IntRange(min=1),
    help="Number of GPUs.  [default: global_num_gpus, else those of one copy of the model]",
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override a key; a.b=c inside a block.")
@click.option(
    "--vocab-size",
    type=click.IntRange(min=1),
    default=_GPT2_VOCAB_SIZE,
    show_default=True,
    help="Size of the tokenizer's vocabulary, for the parameter count; GPT-2's unless given.",
)
@click.option("--keys", "with_keys", is_flag=True, help="Also list every key that is set, with its place.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, keys included.")
def config(
    files: tuple[str, ...],
    conf_dir: Path | None,
    world_size: int | None,
    assignments: tuple[str, ...],
    vocab_size: int,
    with_keys: bool,
    as_json: bool,
) -> None:
    """Show a GPT-NeoX configuration as resolved: batch, layout, precision, parameters, FLOPs.

    A file name may leave out .yml; a name that is not here is looked for among the files that come with neoxlite. What
    neoxlite cannot train is listed, not refused.

    \b
    Examples:
      neoxlite config 2-7B --world-size 16
      neoxlite config 2-7B runs/2.7B-1node-dp4-pp2 --world-size 8
      neoxlite config model.yml local_setup.yml -d configs --set optimizer.params.lr=1e-4
      neoxlite config 20B --world-size 96 --vocab-size 50277 --json
    """
    cfg = load_config(
        files,
        conf_dir=conf_dir,
        overrides=parse_assignments(assignments),
        world_size=world_size,
        allow_unsupported=True,
    )
    summary = describe(cfg, vocab_size)
    if as_json:
        summary["keys"] = {key: {"value": value, "source": cfg.source(key)} for key, value in cfg.as_dict().items()}
        click.echo(json.dumps(summary, indent=2, ensure_ascii=False, default=str))
        return
    for line in _lines(cfg, summary, default_vocab=vocab_size == _GPT2_VOCAB_SIZE):
        click.echo(line)
    if with_keys:
        click.echo("\n" + "\n".join(_key_lines(cfg)))


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
        "precision": cfg.precision,
        "zero_stage": cfg.zero_stage,
        "zero_stage_reason": cfg.zero_stage_reason,
        "vocab_size": vocab_size,
        "padded_vocab_size": padded,
        "parameters": _unless_uncounted(cfg.parameter_count, padded),
        "flops_per_iteration": flops,
        "flops_per_token": None if flops is None else flops / tokens,
        "warnings": cfg.warnings,
        "unsupported": cfg.unsupported,
    }


def _unless_uncounted(function: Callable[..., _T], *arguments: int) -> _T | None:
    """Return the result, or None where the configuration has parts whose parameters cannot be counted."""
    try:
        return function(*arguments)
    except ConfigError:
        return None


def _lines(cfg: NeoxConfig, summary: dict[str, Any], *, default_vocab: bool) -> list[str]:
    tokens, padded = summary["tokens_per_iteration"], summary["padded_vocab_size"]
    stages = max(1, cfg.pipe_parallel_size)
    parameters, bounds = summary["parameters"], summary["pipeline_partition"]
    vocab = f"vocabulary {summary['vocab_size']:,} padded to {padded:,}"
    if default_vocab:
        vocab += "; GPT-2's, --vocab-size gives another"
    rows = [
        ("files", ", ".join(cfg.config_paths)),
        (
            "layout",
            f"{_count(cfg.world_size, 'GPU')} = pipeline {stages} x data {cfg.data_parallel_size} "
            f"x tensor {cfg.model_parallel_size}",
        ),
        ("batch", cfg.batch.equation),
        ("tokens", f"{tokens:,} an iteration, {tokens * cfg.train_iters:,} in {cfg.train_iters:,} iterations"),
        ("precision", _precision(cfg)),
        ("ZeRO", _zero(cfg)),
        (
            "model",
            f"{_count(cfg.num_layers, 'layer')}, hidden size {cfg.hidden_size:,}, "
            f"{_count(cfg.num_attention_heads, 'head')}, sequence length {cfg.seq_length:,}",
        ),
        (
            "parameters",
            f"{parameters:,} ({vocab})" if parameters else "not counted: parts of the model are unknown here",
        ),
    ]
    if summary["flops_per_iteration"]:
        rows.append(
            ("FLOPs", f"{summary['flops_per_iteration']:.4e} an iteration, {summary['flops_per_token']:.4e} a token")
        )
    if stages > 1 and bounds:
        spans = [f"{start}-{end - 1}" for start, end in itertools.pairwise(bounds)]
        rows.insert(2, ("stages", f"layers {', '.join(spans)} of {bounds[-1]}"))
    rows += [("warning", text) for text in cfg.warnings]
    rows += [("cannot train", text) for text in cfg.unsupported]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _precision(cfg: NeoxConfig) -> str:
    dtype = cfg.data_types.get("grad_accum_dtype")
    recompute = "activations recomputed" if cfg.checkpoint_activations else "activations kept"
    return ", ".join([cfg.precision, *([f"gradients accumulated in {dtype}"] if dtype else []), recompute])


def _zero(cfg: NeoxConfig) -> str:
    text = f"stage {cfg.zero_stage} ({cfg.source('zero_optimization')})"
    if cfg.zero_stage_reason:
        text += f", raised from {cfg.zero_optimization['stage']}"
    return text


def _key_lines(cfg: NeoxConfig) -> list[str]:
    keys = cfg.as_dict()
    name_width = max(len(key) for key in keys)
    source_width = max(len(cfg.source(key)) for key in keys)
    return [
        f"{key:<{name_width}}  {cfg.source(key):<{source_width}}  {json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in keys.items()
    ]
