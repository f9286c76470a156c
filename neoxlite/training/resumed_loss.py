"""Whether a resumed run goes on where the checkpoint's run was: its first loss against the last ones. No torch.

Weights that were not loaded, or data of another tokenizer, train without a word; only the loss tells. The first loss of
a resumed run is of a batch that the old run did not see, so it is compared with the last losses before the checkpoint,
by how much batches differ. The limit is the mean of the last `LATEST` and the largest of: six standard deviations of a
batch (from the differences of successive losses, so that a loss that falls is no spread; were they normal, a false
alarm is rarer than one in a million resumes), a tenth of the mean, and 0.1 nats (few or nearly equal losses say little
of the spread). With fewer than `ENOUGH` losses it is half of the mean and at least half a nat. An untrained model is
several nats above any of these. Only a rise is looked at.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from collections.abc import Sequence

from neoxlite.errors import NeoxliteError

KEPT, LATEST, ENOUGH = 32, 8, 4


class LossJumpError(NeoxliteError):
    """The first loss of a resumed run is far above those before the checkpoint."""


class RecentLosses:
    """The last finite losses of a run, through its checkpoints."""

    def __init__(self, stored: Sequence[float], iteration: int):
        """``stored``: the losses up to ``iteration``, which a checkpoint holds; none for a new run."""
        self._losses = deque((float(loss) for loss in stored), maxlen=KEPT)
        self._seen = iteration

    def add(self, iteration: int, losses: Sequence[float]) -> None:
        """Take the losses of the iterations up to ``iteration``; those taken before may be among them."""
        first = iteration - len(losses) + 1
        for number, loss in enumerate(losses, first):
            if number > self._seen:
                self._seen = number
                if math.isfinite(loss):
                    self._losses.append(loss)

    def as_list(self) -> list[float]:
        """Return them for a checkpoint."""
        return list(self._losses)


def limit_after(stored: Sequence[float]) -> float:
    """Return the highest loss that is not called a jump after ``stored``, in nats."""
    mean = statistics.fmean(stored[-LATEST:])
    if len(stored) < ENOUGH:
        return mean + max(0.5 * mean, 0.5)
    of_a_batch = math.sqrt(statistics.fmean((b - a) ** 2 for a, b in itertools.pairwise(stored)) / 2)
    return mean + max(6 * of_a_batch, 0.1 * mean, 0.1)


def check_resumed_loss(stored: Sequence[float], iteration: int, loss: float, checkpoint: str) -> None:
    """Compare the ``loss`` of a resumed run's first ``iteration`` with those stored in its checkpoint.

    Raises:
        LossJumpError: it is above the limit, or not finite.
    """
    if not stored:
        return
    limit = limit_after(stored)
    if loss <= limit:
        return
    raise LossJumpError(
        f"the loss jumped where the run was resumed: {loss:.4f} at iteration {iteration}, after a mean of "
        f"{statistics.fmean(stored[-LATEST:]):.4f} over the iterations before {checkpoint} (limit {limit:.4f}); "
        "the weights or the data are not the checkpoint's",
        hint="compare the data, tokenizer and precision with the checkpoint's config.yml; if the change is meant: "
        "--set checkpoint.check_resumed_loss=false, or finetune: true",
    )
