"""Fewer points of a long series, so that what the eye would see stays: the ends and the extremes of each stretch."""

from __future__ import annotations

import numpy as np

from hpcjob.report.tables import Floats, Ints, drawable


def thinned(values: Floats, at_most: int) -> Ints:
    """Return the places of at most ``at_most`` values that stand for all [n].

    The series is cut into stretches of equal numbers of values; of each the first, last, lowest and highest stay. No
    value is made up, each spike and dip stays, and a drawn line covers the same height. A stretch whose values are not
    finite keeps its first one.
    """
    count = len(values)
    if count <= at_most:
        return np.arange(count)
    stretches = max(1, at_most // 4)
    edges = np.linspace(0, count, stretches + 1).astype(np.int64)
    starts, ends = edges[:-1], edges[1:]
    finite = drawable(values)
    low = _extreme(np.where(finite, values, np.inf), starts, np.minimum)
    high = _extreme(np.where(finite, values, -np.inf), starts, np.maximum)
    return np.unique(np.concatenate([starts, ends - 1, low, high]))


def _extreme(values: Floats, starts: Ints, least_or_most: np.ufunc) -> Ints:
    """Return the first place in each stretch where its extreme stands."""
    extremes = least_or_most.reduceat(values, starts)
    stretch = np.zeros(len(values), np.int64)
    stretch[starts[1:]] = 1
    stretch = np.cumsum(stretch)
    places = np.flatnonzero(values == extremes[stretch])
    _, first = np.unique(stretch[places], return_index=True)
    return places[first]
