"""What is said of a run in words and numbers, beside its curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hpcjob.report.quantities import QUANTITIES
from hpcjob.report.runs import Run
from hpcjob.report.spikes import FLOOR, Spike, find_spikes
from hpcjob.report.tables import Floats, Ints


@dataclass(frozen=True)
class Summary:
    """One run in numbers; None is not known.

    Attributes:
        rows: logged iterations.
        last: the last iteration.
        loss, lowest: the last finite loss and the lowest one, at iteration ``lowest_at``.
        validation, test: the last loss on the validation data, on the test data.
        tokens_per_s, samples_per_s, step_time_ms: medians.
        repeated: iterations that were done again after restarts.
    """

    name: str
    rows: int
    last: int | None
    loss: float | None
    lowest: float | None
    lowest_at: int | None
    validation: float | None
    test: float | None
    tokens_per_s: float | None
    samples_per_s: float | None
    step_time_ms: float | None
    spikes: int
    not_finite: int
    restarts: int
    repeated: int
    checkpoints: int
    last_checkpoint: int | None


def spikes_of(run: Run) -> dict[str, list[Spike]]:
    """Return the spikes of each quantity that is watched and told."""
    found = {}
    for quantity in QUANTITIES:
        if quantity.watched and run.table.has(quantity.name):
            steps, values = run.table.series(quantity.name)
            found[quantity.name] = find_spikes(steps, values, floor=FLOOR[quantity.name])
    return found


def summarize(run: Run, spikes: Mapping[str, list[Spike]]) -> Summary:
    """Return a run in numbers; ``spikes`` is what `spikes_of` found in it."""
    steps, losses = _finite(*run.table.series("loss"))
    least = int(np.argmin(losses)) if len(losses) else None
    of_loss = spikes.get("loss", [])
    return Summary(
        name=run.name,
        rows=len(run.table),
        last=int(run.table.steps[-1]) if len(run.table) else None,
        loss=float(losses[-1]) if len(losses) else None,
        lowest=None if least is None else float(losses[least]),
        lowest_at=None if least is None else int(steps[least]),
        validation=next(reversed(run.validations.values()), None),
        test=next(reversed(run.tests.values()), None),
        tokens_per_s=_median(run, "tokens_per_s"),
        samples_per_s=_median(run, "samples_per_s"),
        step_time_ms=_median(run, "iteration_time_ms"),
        spikes=sum(spike.finite for spike in of_loss),
        not_finite=sum(not spike.finite for spike in of_loss),
        restarts=len(run.restarts),
        repeated=sum(restart.repeated for restart in run.restarts),
        checkpoints=len(run.checkpoints),
        last_checkpoint=run.checkpoints[-1] if run.checkpoints else None,
    )


def _finite(steps: Ints, values: Floats) -> tuple[Ints, Floats]:
    finite = np.isfinite(values)
    return steps[finite], values[finite]


def _median(run: Run, name: str) -> float | None:
    _, values = _finite(*run.table.series(name))
    return float(np.median(values)) if len(values) else None
