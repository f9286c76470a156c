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
from neoxlite.convert.neox_model import NeoxModel
from neoxlite.convert.own import NewCheckpoint, config_text, without_masters, write_checkpoint
from neoxlite.convert.streamed import our_logits
from neoxlite.convert.upstream import Upstream, find_upstream
from neoxlite.convert.upstream_optimizer import State
from neoxlite.errors import CheckpointError, ConfigError


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
    taken = NeoxModel.of(upstream, _configuration(folder, configs, conf_dir, overrides))
    cfg, spec, weights = taken.cfg, taken.spec, taken.weights
    state, step = taken.optimizer() if with_optimizer else (None, 0)
    if state is not None and _is_own_master(weights, state):
        state = without_masters(state)

    def check(written: Path) -> None:
        tokens = prompt_tokens(None, spec)
        there, here = (our_logits(spec, one, tokens) for one in (weights, read_back(written, taken.parameters)))
        if not bool((there == here).all()):
            raise CheckpointError(f"{root}: what was written reads otherwise", hint="check the disk, and run it again")

    training = taken.training(step)
    texts = {"config.yml": config_text(cfg), **_configs(cfg), **tokenizer_files(cfg)}
    new = NewCheckpoint(training["iteration"], weights, state, training, texts)
    written = write_checkpoint(root, new, check)
    numel = sum(weight.numel for weight in weights.values())
    return Converted(folder, written, numel, training["iteration"], state is not None, upstream.layout)


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
