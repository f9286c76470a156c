"""Runs as PNG, SVG or PDF, by matplotlib: one chart a quantity, the same marks as on the page."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hpcjob.report.quantities import QUANTITIES, Quantity
from hpcjob.report.runs import Run
from hpcjob.report.summary import spikes_of
from hpcjob.report.tables import Floats, Ints, drawable
from hpcjob.report.thin import thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = (".png", ".svg", ".pdf")
_COLOURS = ("#0072b2", "#b84a00", "#007a5a", "#a33b86", "#7a6000", "#5b4fc7", "#c2262e", "#4a4f57")
_STYLES = ("-", "--", ":", "-.")
_POINTS_AT_MOST = 8_000
_MARKS_AT_MOST = 200
_LEGEND_AT_MOST = 24
_EAST_ASIAN = (
    "Noto Sans CJK JP",
    "Noto Sans JP",
    "IPAexGothic",
    "IPAGothic",
    "TakaoGothic",
    "VL Gothic",
    "WenQuanYi Zen Hei",
)


def write_picture(
    runs: Sequence[Run], names: Sequence[str], path: Path, stream: IO[bytes], *, log: bool = False
) -> bool:
    """Draw the quantities ``names`` of ``runs`` into ``stream``, as the suffix of ``path`` says.

    Returns:
        False if no font here has all letters of the names; an SVG holds them as text all the same.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    there = set(fontManager.get_font_names())
    settings: Any = {
        "font.family": ["DejaVu Sans", *(name for name in _EAST_ASIAN if name in there)],
        "svg.fonttype": "none",
        "svg.hashsalt": "hpcjob",
        "axes.unicode_minus": False,
    }
    quantities = [one for one in QUANTITIES if one.name in names]
    columns = 1 if len(quantities) < 3 else 2
    lines = math.ceil(len(quantities) / columns)
    with mpl.rc_context(settings), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        figure = Figure(figsize=(7.5 * columns, 3.4 * lines + 0.4), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for place, axis in enumerate(axes):
            if place < len(quantities):
                _chart(axis, quantities[place], runs, log=log)
            else:
                axis.set_axis_off()
        if len(runs) > 1 or runs[0].validations:
            axes[0].legend(fontsize="small", ncols=1 if len(runs) <= 8 else 2)
        if len(runs) == 1:
            figure.suptitle(_plain(runs[0].name))
        figure.savefig(stream, format=path.suffix[1:].lower(), dpi=140, metadata=_metadata(path))
    return not any("missing from font" in str(one.message) for one in said)


def _metadata(path: Path) -> dict[str, Any]:
    """Without the time of making: the same runs make the same file."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})


def _plain(text: str) -> str:
    """Return a name in which nothing is mathematics, and nothing hides it from a legend."""
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text).replace("$", r"\$")
    return "\N{ZERO WIDTH SPACE}" + text if text.startswith("_") else text


def _chart(axis: Axes, quantity: Quantity, runs: Sequence[Run], *, log: bool) -> None:
    for number, run in enumerate(runs):
        colour = _COLOURS[number % len(_COLOURS)]
        steps, values = run.table.series(quantity.name)
        _curve(axis, steps, values, run, colour, _STYLES[number // len(_COLOURS) % len(_STYLES)], number)
        if quantity.name == "loss" and run.validations:
            label = "validation" if number == 0 else None
            held_out = np.array(list(run.validations.values()))
            held_out = np.where(drawable(held_out), held_out, np.nan)
            axis.plot(list(run.validations), held_out, "s", markersize=4, mfc="none", color=colour, label=label)
        _marks(axis, quantity, run, colour)
    if log and any((run.table.series(quantity.name)[1] > 0).any() for run in runs):
        axis.set_yscale("log")
    unit = f" ({quantity.unit})" if quantity.unit else ""
    axis.set_title(quantity.label + unit, fontsize="medium", loc="left")
    axis.set_xlabel(" / ".join(sorted({run.x_name for run in runs})), fontsize="small")
    axis.grid(alpha=0.3)


def _curve(axis: Axes, steps: Ints, values: Floats, run: Run, colour: str, style: str, number: int) -> None:
    chosen = thinned(values, _POINTS_AT_MOST)
    finite = np.where(drawable(values[chosen]), values[chosen], np.nan)
    label = _plain(run.name) if number < _LEGEND_AT_MOST else None
    marker = "." if len(chosen) == 1 else None
    axis.plot(steps[chosen], finite, style, color=colour, linewidth=1.1, marker=marker, label=label)


def _marks(axis: Axes, quantity: Quantity, run: Run, colour: str) -> None:
    for restart in run.restarts[-_MARKS_AT_MOST:]:
        axis.axvline(restart.at, color=colour, linestyle=(0, (4, 4)), linewidth=0.8)
    bottom = axis.get_xaxis_transform()
    if run.checkpoints:
        saved = run.checkpoints[-_MARKS_AT_MOST:]
        axis.plot(saved, [0.015] * len(saved), "^", color=colour, markersize=4, transform=bottom)
    spikes = spikes_of(run).get(quantity.name, []) if quantity.watched else []
    rings = [spike for spike in spikes if spike.finite]
    axis.plot([one.at for one in rings], [one.value for one in rings], "o", mfc="none", color="#b3001b", markersize=7)
    bad = [spike.at for spike in spikes if not spike.finite]
    axis.plot(bad, [0.97] * len(bad), "x", color="#b3001b", markersize=7, transform=bottom)
