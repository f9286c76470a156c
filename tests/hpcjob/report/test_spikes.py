"""Spikes by the stated rule, computed once more with the standard library; and series made thin."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjob.report.spikes import RULE, find_spikes
from hpcjob.report.thin import thinned

_NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False) | st.sampled_from([math.nan, math.inf, -math.inf])


def by_the_rule(values: Sequence[float], floor: float) -> list[int]:
    """Return the places of high values, word by word as the rule says."""
    finite = [(place, value) for place, value in enumerate(values) if math.isfinite(value)]
    high = [place for place, value in enumerate(values) if not math.isfinite(value)]
    for number, (place, value) in enumerate(finite):
        before = [one for _, one in finite[max(0, number - 30) : number]]
        if len(before) < 10:
            continue
        median = statistics.median(before)
        deviation = 1.4826 * statistics.median([abs(one - median) for one in before])
        if value - median > 7 * deviation and value - median > floor * abs(median):
            high.append(place)
    return sorted(high)


@given(st.lists(_NUMBERS, max_size=130), st.sampled_from([0.02, 0.2]))
@settings(max_examples=50, deadline=None)
def test_the_rule(values: list[float], floor: float) -> None:
    """What is found is what the words of the rule find, grouped where places follow each other."""
    spikes = find_spikes(np.arange(len(values)) * 10, np.array(values, np.float64), floor=floor)
    places = [place for spike in spikes for place in range(spike.first // 10, spike.last // 10 + 1)]
    assert places == by_the_rule(values, floor)
    assert all(later.first - earlier.last > 10 for earlier, later in itertools.pairwise(spikes))
    for spike in spikes:
        inside = [values[place] for place in range(spike.first // 10, spike.last // 10 + 1)]
        odd = [value for value in inside if not math.isfinite(value)]
        assert spike.count == len(inside)
        assert str(spike.value) == str(odd[0] if odd else max(inside))


@pytest.mark.ci
def test_noise_is_no_spike_and_planted_ones_are_found() -> None:
    """Of a million noisy values next to none is called a spike; of 1,000 raised by half a nat all are."""
    random = np.random.default_rng(20261129)
    losses = 2 + 8 * np.exp(-np.arange(1_000_000) / 50_000) + random.normal(0, 0.02, 1_000_000)
    steps = np.arange(1, 1_000_001)
    false = find_spikes(steps, losses)
    assert len(false) <= 40
    planted = np.sort(random.choice(np.arange(1_000, 1_000_000, 25), 1_000, replace=False))
    losses[planted] += 0.5
    found = {step for spike in find_spikes(steps, losses) for step in range(spike.first, spike.last + 1)}
    assert set((planted + 1).tolist()) <= found


def test_a_rise_that_stays_is_one() -> None:
    """It is the usual level once half of the values before are of it."""
    values = np.array([2.0, 2.01] * 50 + [3.0, 3.01] * 50)
    (spike,) = find_spikes(np.arange(200), values)
    assert (spike.first, spike.usual) == (100, 2.005)
    assert 10 <= spike.count <= 20


@pytest.mark.parametrize("values", [[], [2.0], [2.0] * 9 + [9.0], [2.0] * 300, list(range(300, 0, -1))])
def test_no_spike(values: list[float]) -> None:
    """Too few values before, constant ones, falling ones."""
    assert find_spikes(np.arange(len(values)), np.array(values, np.float64)) == []


def test_the_rule_is_stated() -> None:
    """The numbers of the rule stand in its text."""
    for number in ("30 logged", "at least 10", "more than 7", "1.4826", "2 %", "20 %"):
        assert number in RULE


@given(st.lists(_NUMBERS, min_size=1, max_size=400), st.integers(4, 100))
@settings(max_examples=50, deadline=None)
def test_thin(values: list[float], at_most: int) -> None:
    """Never more than asked for, ends and extremes stay, and no place is made up."""
    series = np.array(values, np.float64)
    chosen = thinned(series, at_most)
    assert len(chosen) <= max(at_most, 4)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert (chosen[0], chosen[-1]) == (0, len(values) - 1)
    finite = [value for value in values if math.isfinite(value)]
    if finite:
        assert {max(finite), min(finite)} <= set(series[chosen].tolist())


def test_every_stretch_keeps_its_spike() -> None:
    """A million values and a spike in each of 50 stretches: all spikes are among the 6,000 that are left."""
    values = np.full(1_000_000, 2.0)
    planted = np.arange(10_007, 1_000_000, 20_000)
    values[planted] = 3.0
    assert set(planted.tolist()) <= set(thinned(values, 6_000).tolist())
