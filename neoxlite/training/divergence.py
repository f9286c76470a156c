"""When a run is past saving: too many iterations in a row without finite numbers. Imports no torch.

One rule for all precisions. An iteration counts as lost if its loss or its gradient norm is not finite; after
`LIMIT` lost ones in a row the run fails, as GPT-NeoX ends an fp16 run after 50 overflows. That many can be harmless:
fp16 finds its loss scale by skipping steps, with finite losses. So saving has a rule of its own: no checkpoint is
written after an iteration that may have spoilt the weights or shows them spoilt, which is one whose loss is not finite,
or whose step was taken with a gradient that is not. No number of lost iterations can so push the last good checkpoint
out of keep_last_n_checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from neoxlite.errors import NeoxliteError

LIMIT = 50


class DivergedError(NeoxliteError):
    """The run yields no finite numbers any more."""


class Divergence:
    """Follows the iterations of a run; every rank sees the same numbers and comes to the same end."""

    def __init__(self, iteration: int):
        self._seen = iteration
        self._lost = 0
        self.spoilt = False
        """Whether the weights after the last iteration must not be saved."""

    def add(
        self, iteration: int, losses: Sequence[float], grad_norms: Sequence[float], skipped: Sequence[bool]
    ) -> None:
        """Count the iterations up to ``iteration``, one entry each; those counted before may be among them."""
        first = iteration - len(losses) + 1
        for number, loss, norm, skip in zip(range(first, iteration + 1), losses, grad_norms, skipped, strict=True):
            if number <= self._seen:
                continue
            self._seen = number
            self.spoilt = not math.isfinite(loss) or not (skip or math.isfinite(norm))
            self._lost = self._lost + 1 if self.spoilt or not math.isfinite(norm) else 0

    def check(self, checkpoint: str | None, *, at_end: bool = False) -> None:
        """Raise DivergedError after `LIMIT` lost iterations in a row, or ``at_end`` with weights not to be saved."""
        if self._lost < LIMIT and not (at_end and self.spoilt):
            return
        rows = f"the last {self._lost} iterations have" if self._lost > 1 else "the last iteration has"
        before = f"; the last checkpoint is {checkpoint}" if checkpoint else "; there is no checkpoint before it"
        raise DivergedError(
            f"training has diverged: {rows} no finite loss and gradient norm; nothing was saved at iteration "
            f"{self._seen}{before}; lower the learning rate or raise warmup, and continue from a checkpoint before it",
            hint="--iteration N chooses a checkpoint in load; was no loss finite, look at the data and the precision",
        )
