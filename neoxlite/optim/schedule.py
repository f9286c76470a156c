"""GPT-NeoX's learning-rate schedule as a pure function of the iteration. Imports no torch.

Source: GPT-NeoX megatron/learning_rates.py and megatron/training.py (get_learning_rate_scheduler), commit ea7aefd8.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from neoxlite.errors import CheckpointError, ConfigError

STYLES = ("constant", "linear", "cosine", "exponential")


@dataclass(frozen=True)
class Schedule:
    """The five numbers that GPT-NeoX also keeps in a checkpoint."""

    start_lr: float
    min_lr: float
    warmup_iter: float
    """Length of the linear warm-up in iterations, not rounded."""
    end_iter: int
    """Iteration at which the decay ends."""
    decay_style: str

    @classmethod
    def from_config(cls, cfg: Any) -> Schedule:
        """Derive the schedule from lr, min_lr, warmup, train_iters and lr_decay_iters or lr_decay_fraction."""
        end_iter = cfg.lr_decay_iters
        if not end_iter:
            fraction = cfg.lr_decay_fraction
            end_iter = cfg.train_iters if fraction is None else math.floor(cfg.train_iters * fraction)
        if cfg.lr_decay_style not in STYLES:
            raise ConfigError(f"lr_decay_style: {cfg.lr_decay_style} is unknown", hint=f"use {', '.join(STYLES)}")
        return cls(cfg.lr, cfg.min_lr, cfg.warmup * end_iter, end_iter, cfg.lr_decay_style)

    def lr(self, step: int) -> float:
        """Return the rate after ``step`` optimizer steps: that of the next one. Iteration i trains with ``lr(i - 1)``.

        Past `end_iter` nothing is clamped: the cosine rises again, as in GPT-NeoX.
        """
        if self.warmup_iter > 0 and step <= self.warmup_iter:
            return self.start_lr * max(1, step) / self.warmup_iter
        position = step - self.warmup_iter
        length = self.end_iter - self.warmup_iter
        return max(self._decayed(position, length), self.min_lr)

    def _decayed(self, position: float, length: float) -> float:
        if self.decay_style == "linear":
            return self.start_lr * (length - position) / length
        if self.decay_style == "cosine":
            return self.min_lr + (self.start_lr - self.min_lr) / 2 * (math.cos(math.pi * position / length) + 1)
        if self.decay_style == "exponential":
            # GPT-NeoX's rounding of ln 2: the rate halves over the decay.
            return self.start_lr * math.exp(-0.693 * position / length)
        return self.start_lr

    def state(self) -> dict[str, Any]:
        """Return the five numbers, for a checkpoint."""
        return asdict(self)


def _loaded(saved: dict[str, Any]) -> Schedule:
    """Return a checkpoint's schedule. Raises CheckpointError if a field is missing, unknown or of a wrong type."""
    kinds: dict[str, Any] = {
        "start_lr": (int, float),
        "min_lr": (int, float),
        "warmup_iter": (int, float),
        "end_iter": int,
    }
    right = all(isinstance(saved.get(key), kind) for key, kind in kinds.items())
    if not right or set(saved) != {*kinds, "decay_style"} or saved["decay_style"] not in STYLES:
        raise CheckpointError(
            f"the checkpoint's learning-rate schedule is damaged: {str(saved)[:200]}",
            hint="set override_lr_scheduler: true to take the configuration's",
        )
    return Schedule(**saved)


def end_keys(cfg: Any) -> str:
    """Return the keys that say where the decay ends, as they are set: ``train_iters: 1000``."""
    if cfg.lr_decay_iters:
        return f"lr_decay_iters: {cfg.lr_decay_iters}"
    fraction = "" if cfg.lr_decay_fraction is None else f" with lr_decay_fraction: {cfg.lr_decay_fraction}"
    return f"train_iters: {cfg.train_iters}{fraction}"


def resumed_schedule(
    configured: Schedule, saved: dict[str, Any], *, override: bool, use_checkpoint: bool, end: str = "train_iters"
) -> Schedule:
    """Choose between the configuration's schedule and the checkpoint's.

    Args:
        override: override_lr_scheduler, keep the configuration's.
        use_checkpoint: use_checkpoint_lr_scheduler, take the checkpoint's.
        end: `end_keys` of the configuration, for an error's message.

    Raises:
        ConfigError: both switches are set.
        CheckpointError: the two differ and neither switch says which to take.
    """
    if override and use_checkpoint:
        raise ConfigError(
            "override_lr_scheduler and use_checkpoint_lr_scheduler are both set", hint="set at most one of them"
        )
    if override:
        return configured
    loaded = _loaded(saved)
    if use_checkpoint or loaded == configured:
        return loaded
    now = configured.state()
    # The end first: the warm-up is a share of it, so that another train_iters changes both.
    keys = sorted((key for key in now if saved[key] != now[key]), key=lambda key: key != "end_iter")
    changed = ", ".join(f"{key} {saved[key]} -> {now[key]}" for key in keys)
    raise CheckpointError(
        f"{f'{end}: ' if 'end_iter' in keys else ''}the learning-rate schedule is not the checkpoint's: {changed}",
        hint=f"set override_lr_scheduler: true to continue on the new one, whose decay ends at {configured.end_iter}, "
        f"or use_checkpoint_lr_scheduler: true to keep the checkpoint's, whose decay ends at {loaded.end_iter}",
        exit_code=2,
    )
