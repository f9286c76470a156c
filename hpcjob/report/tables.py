"""Numbers of a run by step: one row an iteration, one column a quantity, and for each cell whether the log tells it.

A loss of NaN that the log tells and a loss that it does not tell are different things, hence the second array.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcjob.report.quantities import COLUMN, WIDTH

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


_DRAWN_AT_MOST = 1e100


def drawable(values: Floats) -> Bools:
    """Return which values are finite, and not so large that sums and differences on the way to a picture are not."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(values) < _DRAWN_AT_MOST, np.bool_)


@dataclass(frozen=True)
class Table:
    """Rows in ascending order of their steps, each step once.

    Attributes:
        steps: [rows], iterations; of a log that tells epochs only, millionths of an epoch until the run is numbered.
        values: [rows, columns], 0 where nothing is told.
        told: [rows, columns].
    """

    steps: Ints
    values: Floats
    told: Bools

    def __len__(self) -> int:
        return len(self.steps)

    def rows(self, chosen: Bools) -> Table:
        """Return the rows where ``chosen`` [rows] is true."""
        return Table(self.steps[chosen], self.values[chosen], self.told[chosen])

    def series(self, name: str) -> tuple[Ints, Floats]:
        """Return (steps, values) of the rows that tell the quantity, NaN and infinities among them."""
        column = COLUMN[name]
        told = self.told[:, column]
        return self.steps[told], self.values[told, column]

    def has(self, name: str) -> bool:
        """Return whether any row tells the quantity."""
        return bool(self.told[:, COLUMN[name]].any())

    def filled(self, other: Table) -> Table:
        """Return the table with cells that it does not tell taken from rows of ``other`` with the same step."""
        if not len(self) or not len(other):
            return self
        places = np.searchsorted(other.steps, self.steps).clip(max=len(other) - 1)
        same = other.steps[places] == self.steps
        take = ~self.told & other.told[places] & same[:, None]
        return Table(self.steps, np.where(take, other.values[places], self.values), self.told | take)


def empty() -> Table:
    """Return a table without rows."""
    return Table(np.zeros(0, np.int64), np.zeros((0, WIDTH)), np.zeros((0, WIDTH), np.bool_))


def joined(tables: Sequence[Table]) -> Table:
    """Return the rows of all tables, in order of their steps; of rows with the same step the last table's stays."""
    if not tables:
        return empty()
    steps = np.concatenate([table.steps for table in tables])
    values = np.concatenate([table.values for table in tables])
    told = np.concatenate([table.told for table in tables])
    order = np.argsort(steps, kind="stable")
    last = np.ones(len(steps), np.bool_)
    last[:-1] = steps[order][1:] != steps[order][:-1]
    chosen = order[last]
    return Table(steps[chosen], values[chosen], told[chosen])


class Builder:
    """Takes rows one by one. They are kept in flat arrays: a run may have a million."""

    def __init__(self) -> None:
        self.steps = array("q")
        self._values = array("d")
        self._masks = array("I")

    def __len__(self) -> int:
        return len(self.steps)

    def append(self, step: int, values: Sequence[float | None]) -> None:
        """Add a row of `WIDTH` values; None is not told."""
        self.steps.append(step)
        self._masks.append(_mask(values))
        self._values.extend(0.0 if value is None else value for value in values)

    def update_last(self, values: Sequence[float | None]) -> None:
        """Put what is told here over what the last row tells: two lines told of one iteration."""
        start = len(self._values) - WIDTH
        for column, value in enumerate(values):
            if value is not None:
                self._values[start + column] = value
        self._masks[-1] |= _mask(values)

    def fill_last(self, column: int, value: float) -> None:
        """Give the last row a cell that it did not tell."""
        if self.steps and not self._masks[-1] >> column & 1:
            self._values[len(self._values) - WIDTH + column] = value
            self._masks[-1] |= 1 << column

    def holds(self, step: int, values: Sequence[float | None]) -> bool:
        """Return whether there is a row of this step that tells exactly these values. Steps must ascend."""
        place = bisect_left(self.steps, step)
        if place == len(self.steps) or self.steps[place] != step or self._masks[place] != _mask(values):
            return False
        row = self._values[place * WIDTH : (place + 1) * WIDTH]
        return row.tobytes() == array("d", (0.0 if value is None else value for value in values)).tobytes()

    def table(self) -> Table:
        """Return the rows; of several with one step the last."""
        if not self.steps:
            return empty()
        masks = np.frombuffer(self._masks, np.uint32)
        told = (masks[:, None] >> np.arange(WIDTH, dtype=np.uint32) & 1).astype(np.bool_)
        steps = np.frombuffer(self.steps, np.int64)
        values = np.frombuffer(self._values, np.float64).reshape(-1, WIDTH)
        if (np.diff(steps) > 0).all():
            return Table(steps, values, told)
        return joined([Table(steps, values, told)])


def _mask(values: Sequence[float | None]) -> int:
    mask = 0
    for column, value in enumerate(values):
        if value is not None:
            mask |= 1 << column
    return mask
