"""``neoxlite config show``: a configuration as it will be used, before a GPU hour is spent on it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import click

from neoxlite.common.counting import counted
from neoxlite.config import NeoxConfig, Support, key_table, load_config, parse_assignments
from neoxlite.config.commands.options import resolving, vocabulary
from neoxlite.config.micro_batch import COUNTED, advice
from neoxlite.config.summary import describe, resolved, short


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option(
    "--keys",
    "which",
    type=click.Choice(["none", "given", "used", "all"]),
    default="used",
    show_default=True,
    help="Keys to list with value and origin: those in the files and --set, those that count in training too, or all.",
)
@click.option(
    "--gpu-memory",
    "gpu_memory_gib",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="Say what is faster and has room in so much memory of a GPU: a larger micro-batch, no recomputation.",
)
@resolving
def show(
    files: tuple[str, ...],
    which: str,
    gpu_memory_gib: float | None,
    conf_dir: Path | None,
    world_size: int | None,
    assignments: tuple[str, ...],
    vocab_size: int | None,
    as_json: bool,
) -> None:
    """Show a configuration as resolved: layout, batch, precision, parameters, FLOPs; then each key with its origin.

    A file name may omit .yml; a name that is not here is looked for among the files that come with neoxlite. The
    origin of a value is its file and line, --set, default, or derived from other keys. What neoxlite cannot train is
    listed, not refused.

    \b
    Examples:
      neoxlite config show 2-7B --world-size 16
      neoxlite config show 2-7B runs/2.7B-1node-dp4-pp2 --world-size 8 \\
          --keys given
      neoxlite config show model.yml local_setup.yml -d configs \\
          --set optimizer.params.lr=1e-4
      neoxlite config show 1-3B --gpu-memory 80
      neoxlite config show 20B --world-size 96 --vocab-size 50277 --json
    """
    overrides = parse_assignments(assignments)
    cfg = load_config(files, conf_dir, overrides, world_size, allow_unsupported=True)
    vocab = vocabulary(cfg, vocab_size)
    summary = {**describe(cfg, vocab.size), "vocab_source": vocab.whose}
    if gpu_memory_gib is not None:
        summary["advice"] = advice(cfg, summary["padded_vocab_size"], gpu_memory_gib)
    if as_json:
        summary["keys"] = {name: item._asdict() for name, item in resolved(cfg).items()}
        click.echo(json.dumps(summary, indent=2, ensure_ascii=False, default=str))
        return
    rows = _summary_rows(cfg, summary)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}")
    keys = {name: item for name, item in resolved(cfg).items() if _is_listed(name, item.source, which)}
    if keys:
        click.echo()
        name_width = max(len(name) for name in keys)
        source_width = max(len(item.source) for item in keys.values())
        for name, item in keys.items():
            click.echo(f"{name:<{name_width}}  {item.source:<{source_width}}  {short(item.value)}")


def _is_listed(name: str, source: str, which: str) -> bool:
    is_given = source not in ("default", "derived")
    is_used = is_given or source == "derived" or key_table()[name.partition(".")[0]].support is Support.USED
    return {"none": False, "given": is_given, "used": is_used, "all": True}[which]


def _summary_rows(cfg: NeoxConfig, summary: dict[str, Any]) -> list[tuple[str, str]]:
    tokens, padded, parameters = (summary[name] for name in ("tokens_per_iteration", "padded_vocab_size", "parameters"))
    stages = max(1, cfg.pipe_parallel_size)
    vocab = f"vocabulary {summary['vocab_size']:,} padded to {padded:,}; {summary['vocab_source']}"
    rows = [
        ("files", ", ".join(cfg.config_paths)),
        (
            "layout",
            f"{counted(cfg.world_size, 'GPU')} = pipeline {stages} x data {cfg.data_parallel_size} "
            f"x tensor {cfg.model_parallel_size}"
            + (", sequence parallel" if cfg.sequence_parallel and cfg.model_parallel_size > 1 else ""),
        ),
        *_stages(summary),
        ("batch", cfg.batch.equation),
        ("tokens", f"{tokens:,} an iteration, {_length(cfg, tokens)}"),
        ("precision", _precision(cfg)),
        ("ZeRO", _zero(cfg)),
        (
            "model",
            f"{counted(cfg.num_layers, 'layer')}, hidden size {cfg.hidden_size:,}, "
            f"{counted(cfg.num_attention_heads, 'head')}, MLP width {summary['mlp_width']:,}, "
            f"sequence length {cfg.seq_length:,}",
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
    rows += [("faster", text) for text in summary.get("advice", [])]
    if summary.get("advice") == [] and not cfg.unsupported:
        rows.append(("faster", f"nothing found; looked at are {COUNTED}"))
    rows += [("note", text) for text in cfg.notes]
    rows += [("warning", text) for text in cfg.warnings]
    rows += [("cannot train", text) for text in cfg.unsupported]
    return rows


def _stages(summary: dict[str, Any]) -> list[tuple[str, str]]:
    bounds = summary["pipeline_partition"]
    if not bounds or len(bounds) == 2:
        return []
    spans = [f"{start}-{end - 1}" for start, end in itertools.pairwise(bounds)]
    return [("stages", f"layers {', '.join(spans)} of {bounds[-1]}")]


def _length(cfg: NeoxConfig, tokens: int) -> str:
    if cfg.train_epochs is not None:
        return f"{counted(cfg.train_epochs, 'epoch')} of the training data"
    return f"{tokens * cfg.train_iters:,} in {cfg.train_iters:,} iterations"


def _precision(cfg: NeoxConfig) -> str:
    dtype = cfg.data_types.get("grad_accum_dtype")
    recompute = "activations recomputed" if cfg.checkpoint_activations else "activations kept"
    if cfg.checkpoint_activations and cfg.recompute_granularity == "selective":
        recompute += " but for products and attention"
    return ", ".join([cfg.precision, *([f"gradients accumulated in {dtype}"] if dtype else []), recompute])


def _zero(cfg: NeoxConfig) -> str:
    text = f"stage {cfg.zero_stage} ({cfg.source('zero_optimization')})"
    if cfg.zero_stage_reason:
        text += f", raised from {cfg.zero_optimization['stage']}"
    return text + (", optimizer on the host" if cfg.offload is not None else "")
