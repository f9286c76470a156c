"""A checkpoint of GPT-NeoX becomes one of ours, at any layout, to go on where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neoxlite.checkpoint.optimizer_state import MASTER
from neoxlite.checkpoint.tokenizer_files import tokenizer_files
from neoxlite.config import NeoxConfig, load_config
from neoxlite.convert.compare import prompt_tokens
from neoxlite.convert.from_hf import read_back
from neoxlite.convert.memory import return_freed_blocks
from neoxlite.convert.own import NewCheckpoint, config_text, training_entry, without_masters, write_checkpoint
from neoxlite.convert.shape import parameters_of
from neoxlite.convert.streamed import our_logits
from neoxlite.convert.upstream import Upstream, find_upstream
from neoxlite.convert.upstream_optimizer import State, optimizer_of
from neoxlite.errors import CheckpointError, ConfigError
from neoxlite.model.spec import ModelSpec
from neoxlite.optim.schedule import STYLES, Schedule

_COMPARED = ("num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "tokenizer_type")


@dataclass(frozen=True)
class Converted:
    """What was written."""

    source: Path
    folder: Path
    parameters: int
    iteration: int
    with_optimizer: bool
    layout: str


def convert(
    source: Path,
    root: Path,
    configs: Sequence[str],
    *,
    conf_dir: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    iteration: int | None = None,
    with_optimizer: bool = True,
) -> Converted:
    """Write the checkpoint that GPT-NeoX saved in ``source`` under ``root``.

    Args:
        configs: the configuration it was trained with; by default the files that it keeps itself.
        iteration: which one, by default the latest.

    Raises:
        CheckpointError: it is damaged, of a kind that cannot be read, or not of this configuration; or ``root`` cannot
            be written.
        ConfigError: a mistake in the configuration.
    """
    return_freed_blocks()
    folder = find_upstream(source, iteration)
    upstream = Upstream.open(folder)
    cfg = _configuration(folder, configs, conf_dir, overrides)
    _compare(upstream, cfg)
    spec = ModelSpec.from_config(cfg, _padded_vocabulary(upstream))
    parameters = parameters_of(spec)
    weights = upstream.weights(spec, parameters)
    state, step = optimizer_of(upstream, cfg, spec, parameters) if with_optimizer else (None, 0)
    if state is not None and _is_own_master(weights, state):
        state = without_masters(state)

    def check(written: Path) -> None:
        tokens = prompt_tokens(None, spec)
        there, here = (our_logits(spec, one, tokens) for one in (weights, read_back(written, parameters)))
        if not bool((there == here).all()):
            raise CheckpointError(f"{root}: what was written reads otherwise", hint="check the disk, and run it again")

    position = _position(upstream, cfg, step)
    training = training_entry(
        spec, cfg, position=position, schedule=_schedule(upstream, cfg), source=f"GPT-NeoX {folder.name}"
    )
    texts = {"config.yml": config_text(cfg), **_configs(cfg), **tokenizer_files(cfg)}
    new = NewCheckpoint(position["iteration"], weights, state, training, texts)
    written = write_checkpoint(root, new, check)
    layout = f"dp {upstream.data_size} x pp {upstream.pipeline_size} x tp {upstream.tensor_size}"
    numel = sum(weight.numel for weight in weights.values())
    return Converted(folder, written, numel, position["iteration"], state is not None, layout)


def _is_own_master(weights: Mapping[str, Any], state: State) -> bool:
    """Tell whether every weight has the master's precision, so that the master says nothing more."""
    return all(weights[name].dtype == kinds[MASTER].dtype for name, kinds in state.items() if MASTER in kinds)


def _configs(cfg: NeoxConfig) -> dict[str, bytes]:
    return {f"configs/{Path(name).name}": text.encode() for name, text in cfg.config_files.items()}


def _configuration(
    folder: Path, configs: Sequence[str], conf_dir: str | None, overrides: Mapping[str, Any] | None
) -> NeoxConfig:
    if configs:
        return load_config(list(configs), conf_dir, overrides)
    own = sorted(str(path) for path in (folder / "configs").glob("*") if path.suffix in (".yml", ".yaml", ".json"))
    hint = f"give the files it was trained with: neoxlite convert from-neox {folder} NEW_FOLDER CONFIG.yml"
    if not own:
        raise CheckpointError(f"{folder} keeps no configuration", hint=hint, exit_code=2)
    try:
        return load_config(own, None, overrides)
    except ConfigError as error:
        raise CheckpointError(f"{folder}: its own configuration: {error.message}", hint=hint, exit_code=2) from None


def _compare(upstream: Upstream, cfg: NeoxConfig) -> None:
    args = upstream.args
    for key in _COMPARED:
        if key in args and str(args[key]).lower() != str(getattr(cfg, key)).lower():
            raise CheckpointError(
                f"{upstream.folder} was trained with {key}: {args[key]}, the configuration has {getattr(cfg, key)}",
                hint="give the configuration that it was trained with",
                exit_code=2,
            )


def _padded_vocabulary(upstream: Upstream) -> int:
    known = upstream.args.get("padded_vocab_size")
    if isinstance(known, int):
        return known
    if upstream.layers:
        weight = upstream.layers[0, 0].weight("word_embeddings.weight")
    else:
        weight = upstream.slices[0].weight("module", "sequential.0.word_embeddings.weight")
    return weight.shape[0] * upstream.tensor_size


def _position(upstream: Upstream, cfg: NeoxConfig, step: int) -> dict[str, int]:
    state = upstream.state
    iteration = _count(upstream, "iteration", state.get("iteration", state.get("global_steps")))
    skipped = _count(upstream, "skipped_steps", state.get("skipped_steps", 0))
    ds_config = state.get("ds_config")
    batch = ds_config.get("train_batch_size") if isinstance(ds_config, dict) else None
    batch = batch if isinstance(batch, int) and batch > 0 else cfg.train_batch_size
    return {
        "iteration": iteration,
        # GPT-NeoX goes on at iteration x batch (megatron/data/data_utils.py).
        "consumed_samples": iteration * batch,
        "skipped_steps": skipped,
        "optimizer_step": step or iteration - skipped,
        "train_batch_size": batch,
        "data_parallel_size": upstream.data_size,
        "world_size": upstream.data_size * len(upstream.slices),
    }


def _count(upstream: Upstream, name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CheckpointError(f"{upstream.folder}: {name} is {str(value)[:40]!r}", hint="copy the folder again")
    return value


def _schedule(upstream: Upstream, cfg: NeoxConfig) -> dict[str, Any]:
    """Return GPT-NeoX's five numbers, those of the configuration where the checkpoint has none."""
    saved = upstream.state.get("lr_scheduler")
    configured = Schedule.from_config(cfg).state()
    if not isinstance(saved, dict):
        return configured
    found: dict[str, Any] = {key: saved.get(key) for key in configured}
    numbers = (found["start_lr"], found["min_lr"], found["warmup_iter"], found["end_iter"])
    right = all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers)
    if not right or found["decay_style"] not in STYLES:
        raise CheckpointError(
            f"{upstream.folder}: its learning-rate schedule is {str(found)[:160]}", hint="copy the folder again"
        )
    return {**found, "end_iter": int(found["end_iter"])}
