"""The loss scale of a fp16 run of GPT-NeoX, out of DeepSpeed's pickled scaler."""

from __future__ import annotations

import math
from typing import TypeGuard

from neoxlite.convert.pickles import Inert
from neoxlite.convert.upstream import Upstream
from neoxlite.errors import CheckpointError

_FIELDS = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")


def loss_scale_of(upstream: Upstream) -> dict[str, float | int] | None:
    """Return what `neoxlite.optim.loss_scale.LossScale.restore` takes; None where there is no dynamic scale.

    ZeRO's files have the scaler of the first slice's first replica, which is that of all (DeepSpeed,
    runtime/fp16/loss_scaler.py: ``cur_iter`` counts steps, ``last_overflow_iter`` is -1 before the first overflow).

    Raises:
        CheckpointError: it makes no sense.
    """
    if (0, 0) not in upstream.zero:
        return None
    file = upstream.zero[0, 0]
    content = file.content()
    state = content.get("optimizer_state_dict") if isinstance(content, dict) else None
    scaler = state.get("loss_scaler") if isinstance(state, dict) else None
    fields = getattr(scaler, "state", None) if isinstance(scaler, Inert) else None
    if not isinstance(fields, dict) or not fields.get("dynamic"):
        return None
    scale, steps, overflow, left = (fields.get(key) for key in _FIELDS)
    if not _is_scale(scale) or not (_is_count(steps) and _is_count(overflow) and _is_count(left)):
        raise CheckpointError(f"{file.path} is damaged: its loss scale is {str(scale)[:40]!r}", hint="copy it again")
    # The good steps are those behind the last one that overflowed.
    return {"scale": float(scale), "good_steps": max(0, steps - overflow - 1), "hysteresis_left": max(1, left)}


def _is_scale(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
