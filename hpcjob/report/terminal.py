"""Runs as charts of letters, by plotext: for a login node without a browser."""

from __future__ import annotations

import importlib
import math
import shutil
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from hpcjob.cli.jobs import has_colours
from hpcjob.logs.table import rate_text
from hpcjob.report.page import number
from hpcjob.report.quantities import QUANTITIES, Quantity
from hpcjob.report.runs import Run
from hpcjob.report.spikes import Spike
from hpcjob.report.summary import Summary, spikes_of, summarize
from hpcjob.report.tables import Floats, Ints, drawable
from hpcjob.report.thin import thinned
from neoxlite.common.counting import counted
from neoxlite.common.printable import printable

_COLOURS = ("cyan", "orange", "green", "magenta", "blue", "red", "gray", "white")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ROWS_FIRST, _ROWS_OTHERS = 16, 10
_WIDTH_LEAST, _WIDTH_MOST = 40, 160
_POINTS_A_COLUMN = 8
_SPIKES_TOLD = 5


def draw(runs: Sequence[Run], names: Sequence[str], stream: TextIO, *, log: bool) -> None:
    """Write a chart for each quantity of ``names``, then each run in a few words.

    Raises:
        ModuleNotFoundError: plotext is not installed.
    """
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    plain = not has_colours(stream)
    width = min(max(shutil.get_terminal_size().columns, _WIDTH_LEAST), _WIDTH_MOST)
    spikes = [spikes_of(run) for run in runs]
    for place, quantity in enumerate(one for one in QUANTITIES if one.name in names):
        rows = _ROWS_OTHERS if place else _ROWS_FIRST
        stream.write(_chart(quantity, runs, spikes, (width, rows), log=log, plain=plain) + "\n")
    stream.write("marks: o spike, v validation, x not finite (at the top), : restart, ^ checkpoint (at the bottom)\n")
    for place, (run, found) in enumerate(zip(runs, spikes, strict=True)):
        for line in _words(run, summarize(run, found), found):
            print(f"{_letter(place)}  {line}" if len(runs) > 1 else line, file=stream)


def _letter(place: int) -> str:
    return _LETTERS[place % len(_LETTERS)]


def _chart(
    quantity: Quantity,
    runs: Sequence[Run],
    spikes: Sequence[dict[str, list[Spike]]],
    size: tuple[int, int],
    *,
    log: bool,
    plain: bool,
) -> str:
    plotext = importlib.import_module("plotext")  # it has no types
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(*size)
    unit = f" ({quantity.unit})" if quantity.unit else ""
    figure.title(f"{quantity.label}{unit}{', logarithmic' if log else ''}")
    curves = [_curve(run, quantity.name, size[0], log=log) for run in runs]
    every = [curve for curve in curves if len(curve[0])]
    held_out = [_held_out(run, log=log) if quantity.name == "loss" else [] for run in runs]
    validated = [np.array([y for _, y in points]) for points in held_out if points]
    low, high = _limits([*(values for _, values in every), *validated])
    first = min((int(steps[0]) for steps, _ in every), default=0)
    last = max((int(steps[-1]) for steps, _ in every), default=1)
    for place, (steps, values) in enumerate(curves):
        colour = _COLOURS[place % len(_COLOURS)]
        mark = "hd" if len(runs) == 1 or not plain else _letter(place)
        if len(steps):
            signal = figure.signal(steps.tolist(), values.tolist(), marker=plotext.marker(mark, colour))
            signal.lines()
            figure.draw(signal)
        marked = _marks(runs[place], spikes[place].get(quantity.name, []), (low, high), log=log)
        for symbol, points in [*marked.items(), ("v", held_out[place])]:
            inside = [(x, y) for x, y in points if first <= x <= last]
            if inside:
                x, y = zip(*inside, strict=True)
                figure.draw(
                    figure.signal(list(x), list(y), marker=plotext.marker(symbol, "red" if symbol in "ox" else colour))
                )
    _rulers(figure, (first, last), (low, high), size, log=log)
    text: str = figure.build().string(plain)
    return text.rstrip("\n")


def _curve(run: Run, name: str, columns: int, *, log: bool) -> tuple[Ints, Floats]:
    """Return the points to draw: finite ones, of a logarithmic scale the logarithms of the positive ones."""
    steps, values = run.table.series(name)
    finite = drawable(values) & (values > 0) if log else drawable(values)
    steps, values = steps[finite], values[finite]
    chosen = thinned(values, columns * _POINTS_A_COLUMN)
    return steps[chosen], np.log10(values[chosen]) if log else values[chosen]


def _held_out(run: Run, *, log: bool) -> list[tuple[float, float]]:
    """Return the points of the validations that can be drawn."""
    steps, losses = np.array(list(run.validations), np.int64), np.array(list(run.validations.values()), np.float64)
    finite = drawable(losses) & (losses > 0) if log else drawable(losses)
    values = np.log10(losses[finite]) if log else losses[finite]
    return list(zip(steps[finite].astype(float).tolist(), values.tolist(), strict=True))


def _limits(series: Sequence[Floats]) -> tuple[float, float]:
    low = min((float(values.min()) for values in series), default=0.0)
    high = max((float(values.max()) for values in series), default=1.0)
    margin = (high - low) * 0.02 or (abs(high) or 1.0) * 0.1
    return low - margin, high + margin


def _marks(
    run: Run, spikes: Sequence[Spike], limits: tuple[float, float], *, log: bool
) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each mark."""
    low, high = limits
    rings = [
        (float(one.at), math.log10(one.value) if log else one.value)
        for one in spikes
        if one.finite and not (log and one.value <= 0)
    ]
    return {
        ":": [(float(one.at), y) for one in run.restarts for y in np.linspace(low, high, _ROWS_FIRST * 2).tolist()],
        "^": [(float(step), low) for step in run.checkpoints],
        "o": rings,
        "x": [(float(one.at), high) for one in spikes if not one.finite],
    }


def _rulers(
    figure: Any, steps: tuple[int, int], limits: tuple[float, float], size: tuple[int, int], *, log: bool
) -> None:
    """Put round numbers at the axes."""
    across = _round(steps[0], steps[1], size[0] // 14)
    figure.ruler("x").lim(steps[0], max(steps[1], steps[0] + 1))
    figure.ruler("x").ticks(across, [f"{one:,.0f}" for one in across])
    up = _round(*limits, max(2, size[1] // 3))
    figure.ruler("y").lim(*limits)
    figure.ruler("y").ticks(up, [f"{10**one if log else one:,.6g}" for one in up])


def _round(low: float, high: float, count: int) -> list[float]:
    """Return about ``count`` round numbers between two."""
    rough = (high - low) / max(count, 1) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= rough), 10 * power)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [place * step for place in range(first, last + 1)] or [low]


def _words(run: Run, summary: Summary, spikes: dict[str, list[Spike]]) -> list[str]:
    parts = [f"{run.x_name} {number(summary.last)}", f"loss {number(summary.loss)}"]
    if summary.lowest_at is not None:
        parts.append(f"lowest {number(summary.lowest)} at {number(summary.lowest_at)}")
    if summary.validation is not None:
        parts.append(f"validation {number(summary.validation)}")
    if summary.test is not None:
        parts.append(f"test {number(summary.test)}")
    if summary.tokens_per_s is not None:
        parts.append(f"{rate_text(summary.tokens_per_s)} tokens/s")
    if summary.restarts:
        parts.append(f"{counted(summary.restarts, 'restart')} ({counted(summary.repeated, 'iteration')} repeated)")
    if summary.checkpoints:
        parts.append(counted(summary.checkpoints, "checkpoint"))
    lines = [f"{printable(run.name)}: {', '.join(parts)}"]
    found = spikes.get("loss", [])
    if found:
        told = [f"{one.at} ({number(one.value) if one.finite else 'not finite'})" for one in found[-_SPIKES_TOLD:]]
        before = "the last ones at " if len(found) > _SPIKES_TOLD else "at "
        lines.append(f"   {counted(len(found), 'spike')} of the loss: {before}{', '.join(told)}")
    return lines
