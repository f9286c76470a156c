"""The position of a run, and its way into and out of a checkpoint."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from neoxlite import __version__
from neoxlite.checkpoint.architecture import architecture_of, compare_architecture
from neoxlite.checkpoint.folder import iteration_of
from neoxlite.checkpoint.optimizer_state import OptimizerState
from neoxlite.checkpoint.save import Contents
from neoxlite.checkpoint.source import open_source, saved_place
from neoxlite.checkpoint.start import BEGAN_FROM, begun_before, choose, is_same
from neoxlite.checkpoint.tokenizer_files import tokenizer_files
from neoxlite.errors import CheckpointError, ConfigError
from neoxlite.model.spec import ModelSpec
from neoxlite.optim.schedule import Schedule, end_keys, resumed_schedule
from neoxlite.training.run_data import DataState

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig
    from neoxlite.training.engine import Engine


@dataclass
class Position:
    """How far training has come."""

    iteration: int = 0
    consumed_samples: int = 0
    skipped_steps: int = 0

    @property
    def steps_taken(self) -> int:
        """Optimizer steps that were not skipped; the schedule advances by these, as in GPT-NeoX."""
        return self.iteration - self.skipped_steps

    def advance(self, samples: int, *, skipped: bool) -> None:
        """Count one iteration over ``samples`` sequences."""
        self.iteration += 1
        self.consumed_samples += samples
        self.skipped_steps += skipped


@dataclass(frozen=True)
class Resumed:
    """What a run goes on from."""

    position: Position
    schedule: Schedule
    losses: list[float] = dataclasses.field(default_factory=list)
    """The last losses before the checkpoint; none for a new run or with ``finetune``."""


@dataclass(frozen=True)
class Start:
    """Where a run begins: the checkpoint's folder, None for a new run, and what to tell the user about it.

    ``data`` and ``consumed_samples`` are what that checkpoint says of the data.
    """

    folder: Path | None
    warning: str | None
    data: DataState | None = None
    consumed_samples: int = 0


def find_start(cfg: NeoxConfig) -> Start:
    """Choose the checkpoint to begin from, before any costly set-up.

    Raises:
        CheckpointError: see `neoxlite.checkpoint.start.choose` and `begun_before`; or ``finetune`` without a
            checkpoint to begin from, or into the folder of that one.
    """
    finetune = bool(getattr(cfg, "finetune", False))
    folder, warning = choose(_path(cfg.load), _path(cfg.save), cfg.iteration)
    if folder is None and finetune:
        raise CheckpointError(
            f"finetune: load: {cfg.load} has no checkpoint", hint="give the folder of one in load", exit_code=2
        )
    if folder is None:
        return Start(None, warning)
    if finetune and is_same(cfg.load, cfg.save):
        raise CheckpointError(
            f"finetune: load and save are one folder, {cfg.load}: its checkpoints would be mixed with new ones",
            hint="give another folder in save",
            exit_code=2,
        )
    if cfg.save and not is_same(cfg.load, cfg.save):
        first = -1 if finetune else iteration_of(folder) or 0
        own = begun_before(folder.parent, Path(cfg.save), first)
        if own is not None:
            folder, warning = own, f"this run began from {cfg.load} before: it continues from {own}"
    if _weights_alone(folder, cfg):
        return Start(folder, warning)
    saved = saved_place(folder, cfg)
    return Start(folder, warning, DataState.of(saved), saved["consumed_samples"])


def _weights_alone(folder: Path, cfg: NeoxConfig) -> bool:
    """Tell whether ``finetune`` takes the weights of a checkpoint: not if it is of the fine-tuning itself."""
    return bool(getattr(cfg, "finetune", False)) and not _is_own(folder, cfg)


def _is_own(folder: Path, cfg: NeoxConfig) -> bool:
    """Tell whether a run that began from another folder goes on from a checkpoint of its own."""
    return is_same(str(folder.parent), cfg.save) and not is_same(cfg.load, cfg.save)


def resume(
    folder: Path | None,
    cfg: NeoxConfig,
    engine: Engine,
    schedule: Schedule,
    padded_vocab_size: int,
    say: Callable[[str], None],
) -> Resumed:
    """Load the checkpoint in ``folder`` into ``engine``; None begins a new run.

    With ``finetune`` only the weights are taken and training begins at iteration 0; with ``no_load_optim`` the
    optimizer begins anew, at the checkpoint's iteration.

    Raises:
        CheckpointError: the checkpoint is damaged or not this model's, or its schedule is another.
    """
    if folder is None:
        return Resumed(Position(), schedule)
    source = open_source(folder, cfg)
    source.verify(engine.topology)
    saved = source.training
    finetune = _weights_alone(folder, cfg)
    _compare(folder, saved, padded_vocab_size)
    line = compare_architecture(folder, saved, ModelSpec.from_config(cfg, padded_vocab_size), refuse=not finetune)
    if line is not None:
        say(line)
    for note in source.notes:
        say(note)
    source.load_weights(engine)
    no_load_optim = bool(getattr(cfg, "no_load_optim", False)) and not _is_own(folder, cfg)
    if saved["with_optimizer"] and not finetune and not no_load_optim:
        source.load_optimizer(engine)
        if engine.loss_scale is not None and saved.get("loss_scale"):
            engine.loss_scale.restore(saved["loss_scale"])
    else:
        source.load_master_weights(engine)
    say(f"  successfully loaded {folder}")
    if finetune:
        return Resumed(Position(), schedule)
    position = Position(saved["iteration"], saved["consumed_samples"], saved["skipped_steps"])
    say(f"Loading checkpoint and starting from iteration {position.iteration}")
    warning = begins_anew(folder, cfg, saved)
    if warning is not None:
        say(warning)
    if position.iteration >= cfg.train_iters:
        say(f"train_iters: {cfg.train_iters} is reached: no iteration is left; a larger one continues from here")
    if saved["train_batch_size"] != cfg.train_batch_size:
        say(
            f"train_batch_size was {saved['train_batch_size']}, now it is {cfg.train_batch_size}: "
            "the data continue at the next sample"
        )
    schedule = resumed_schedule(
        schedule,
        saved["schedule"],
        override=bool(getattr(cfg, "override_lr_scheduler", False)),
        use_checkpoint=bool(getattr(cfg, "use_checkpoint_lr_scheduler", False)),
        end=end_keys(cfg),
    )
    return Resumed(position, schedule, saved.get("losses", []))


def begins_anew(folder: Path, cfg: NeoxConfig, saved: Mapping[str, Any]) -> str | None:
    """Return a warning if a run goes on without the optimizer's moments though nobody may have meant it, or None.

    ``no_load_optim`` is meant for the start from another run's checkpoint: a job that is started anew has it still.
    """
    anew = f"the optimizer restarts at iteration {saved['iteration']}, without its moments"
    if saved["with_optimizer"]:
        if not getattr(cfg, "no_load_optim", False) or not is_same(cfg.load, cfg.save):
            return None
        return (
            f"WARNING: no_load_optim: {anew}, and does so at each restart, for load and save are one folder: omit the "
            "key now, or give another folder in save, from which a restart takes them"
        )
    if saved["iteration"] == 0:  # as of a converted model
        return None
    each = (
        "; no_save_optim: so does each restart, unless the key is omitted" if getattr(cfg, "no_save_optim", 0) else ""
    )
    return f"WARNING: {folder} was saved without the optimizer: {anew}{each}"


def behind_the_decay(schedule: Schedule, train_iters: int) -> str | None:
    """Return a warning if a cosine ends before training does, or None.

    Raises:
        ConfigError: training goes on behind a decay that has no length.
    """
    end = schedule.end_iter
    if end >= train_iters or schedule.decay_style == "constant":
        return None
    if schedule.warmup_iter >= end:
        raise ConfigError(
            f"the learning rate has no iteration to fall in: its warm-up is the whole decay, {end} iterations, and "
            f"training continues to {train_iters}",
            hint="lower warmup, or raise lr_decay_iters or lr_decay_fraction",
        )
    if schedule.decay_style != "cosine":
        return None
    return (
        f"WARNING: the cosine of the learning rate ends at iteration {end}, training at {train_iters}: in between the "
        f"rate rises again, as in GPT-NeoX, to {schedule.lr(train_iters - 1):.3E}; lr_decay_iters: {train_iters} "
        "stretches the cosine (with override_lr_scheduler: true in a run that is resumed)"
    )


def _compare(folder: Path, saved: dict[str, Any], padded_vocab_size: int) -> None:
    if saved["padded_vocab_size"] != padded_vocab_size:
        raise CheckpointError(
            f"{folder} has a padded vocabulary of {saved['padded_vocab_size']}, this run {padded_vocab_size}",
            hint="set the tokenizer and make_vocab_size_divisible_by of the checkpoint's config.yml",
            exit_code=2,
        )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def checkpoint_contents(
    cfg: NeoxConfig,
    engine: Engine,
    schedule: Schedule,
    position: Position,
    padded_vocab_size: int,
    data: Mapping[str, Any],
    losses: list[float],
) -> Contents:
    """Return what a checkpoint of this moment holds besides tensors.

    Args:
        data: that of `RunData.state`.
        losses: the last ones, against which a resumed run is checked.
    """
    training = {
        **dataclasses.asdict(position),
        "optimizer_step": OptimizerState(engine).step,
        "with_optimizer": not getattr(cfg, "no_save_optim", False),
        "loss_scale": engine.loss_scale.state() if engine.loss_scale is not None else None,
        "schedule": schedule.state(),
        "precision": cfg.precision,
        "zero_stage": cfg.zero_stage,
        "world_size": cfg.world_size,
        "data_parallel_size": cfg.data_parallel_size,
        "train_batch_size": cfg.train_batch_size,
        "data": dict(data),
        "losses": losses,
        "padded_vocab_size": padded_vocab_size,
        BEGAN_FROM: os.path.realpath(cfg.load) if cfg.load and not is_same(cfg.load, cfg.save) else None,
        "architecture": architecture_of(ModelSpec.from_config(cfg, padded_vocab_size)),
        "neoxlite": __version__,
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    return Contents(training, _texts(cfg), with_optimizer=training["with_optimizer"])


def _texts(cfg: NeoxConfig) -> dict[str, bytes]:
    texts = {f"configs/{Path(name).name}": text.encode() for name, text in cfg.config_files.items()}
    texts["config.yml"] = yaml.safe_dump(cfg.as_dict(), allow_unicode=True, sort_keys=False).encode()
    return texts | tokenizer_files(cfg)
