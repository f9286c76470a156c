"""Spikes of a series, by a robust rule that needs no setting: `RULE`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hpcjob.report.tables import Bools, Floats, Ints, drawable

WINDOW = 30
FEWEST = 10
DEVIATIONS = 7.0
FLOOR = {"loss": 0.02, "grad_norm": 0.2, "iteration_time_ms": 0.2}
RULE = (
    "A value is high if it stands above the median of the 30 logged values before it (at least 10) by more than 7 of "
    "their robust standard deviations, 1.4826 times the median absolute deviation, and by more than 2 % of that median "
    "(20 % for gradient norms and step times). High values in a row, and values that are not finite, are one spike. "
    "Single spikes do not move the median, and it follows a falling loss. A rise that stays is one spike until it is "
    "the usual level."
)
_BLOCK = 32_768
_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class Spike:
    """Values in a row that stand out.

    Attributes:
        first, last: their steps.
        at: step of the highest one, or of the first that is not finite (or beyond 1e100).
        value: there.
        usual: median of the values before the first of them; NaN where there are too few.
        count: how many logged values.
    """

    first: int
    last: int
    at: int
    value: float
    usual: float
    count: int

    @property
    def finite(self) -> bool:
        """Whether the value is a number that can be drawn."""
        return bool(drawable(np.float64(self.value)))


def find_spikes(steps: Ints, values: Floats, *, floor: float = FLOOR["loss"]) -> list[Spike]:
    """Return the spikes of a series [n], in order.

    Args:
        floor: least height above the median, as a share of it.
    """
    finite = drawable(values)
    high = ~finite
    usual = np.full(len(values), np.nan)
    usual[finite], above = _above(values[finite], floor)
    high[finite] = above
    places = np.flatnonzero(high)
    if not len(places):
        return []
    breaks = np.flatnonzero(np.diff(places) > 1) + 1
    return [_spike(steps, values, usual, group) for group in np.split(places, breaks)]


def _spike(steps: Ints, values: Floats, usual: Floats, places: Ints) -> Spike:
    bad = places[~drawable(values[places])]
    top = bad[0] if len(bad) else places[np.argmax(values[places])]
    before = usual[places][np.isfinite(usual[places])]
    return Spike(
        int(steps[places[0]]),
        int(steps[places[-1]]),
        int(steps[top]),
        float(values[top]),
        float(before[0]) if len(before) else float("nan"),
        len(places),
    )


def _above(values: Floats, floor: float) -> tuple[Floats, Bools]:
    """Return the median before each value (NaN where fewer than `FEWEST` are) and whether the value is high."""
    usual = np.full(len(values), np.nan)
    high = np.zeros(len(values), np.bool_)
    for place in range(FEWEST, min(WINDOW, len(values))):
        here = slice(place, place + 1)
        usual[here], high[here] = _judged(values[None, :place], values[here], floor)
    for start in range(WINDOW, len(values), _BLOCK):
        here = slice(start, min(start + _BLOCK, len(values)))
        windows = sliding_window_view(values[start - WINDOW : here.stop - 1], WINDOW)
        usual[here], high[here] = _judged(windows, values[here], floor)
    return usual, high


def _judged(windows: Floats, values: Floats, floor: float) -> tuple[Floats, Bools]:
    """Return the median of each window [rows, width] and whether the value after it [rows] is high."""
    usual = _medians(windows)
    height = values - usual
    high = height > floor * np.abs(usual)
    maybe = np.flatnonzero(high)  # the deviations of all others do not matter
    spread = _TO_SIGMA * _medians(np.abs(windows[maybe] - usual[maybe, None]))
    high[maybe] = height[maybe] > DEVIATIONS * spread
    return usual, high


def _medians(windows: Floats) -> Floats:
    """Return the median of each row of [rows, width]; sorting short rows is faster than numpy's own median."""
    width = windows.shape[1]
    middle = [(width - 1) // 2, width // 2]
    return np.asarray(np.sort(windows, axis=1)[:, middle].mean(axis=1), np.float64)
