"""Which iterations save a checkpoint. Imports no torch."""

from __future__ import annotations

from typing import Any

from neoxlite.errors import ConfigError


def save_iterations(cfg: Any) -> set[int]:
    """Return the iterations up to train_iters after which a checkpoint is written, without the last one's own.

    checkpoint_scale ``linear`` saves at multiples of checkpoint_factor, ``log`` at int(factor**k); extra_save_iters add
    to both (GPT-NeoX megatron/neox_arguments/arguments.py, save_iters). 0 is the state before training.
    """
    iterations = {int(iteration) for iteration in cfg.extra_save_iters or ()}
    factor = cfg.checkpoint_factor
    if factor:
        if cfg.checkpoint_scale == "log":
            iterations |= _powers(factor, cfg.train_iters)
        else:
            if int(factor) < 1:
                raise ConfigError(f"checkpoint_factor: {factor} is below 1", hint="give a number of iterations")
            iterations |= set(range(int(factor), cfg.train_iters + 1, int(factor)))
    return iterations


def _powers(factor: float, train_iters: int) -> set[int]:
    if not factor > 1:
        raise ConfigError(
            f"checkpoint_factor: {factor} with checkpoint_scale log must be above 1", hint="2 saves at 1, 2, 4, 8, ..."
        )
    if factor <= 1 + 1 / train_iters:  # then no two powers are further apart than 1, and too many to count
        return set(range(1, train_iters + 1))
    powers, power = set(), 1.0
    while power <= train_iters:
        powers.add(int(power))
        power *= factor
    return powers
