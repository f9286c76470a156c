"""One HTML page that compares runs: self-contained, nothing is fetched, safe whatever runs are called.

Texts of logs enter the page in two ways: escaped as HTML, or inside a block of JSON in which ``<`` is escaped, so that
nothing ends the block. The page forbids itself, by a content security policy with the hashes of its own script and
style, to run or load anything else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from hpcjob import __version__
from hpcjob.logs.table import rate_text
from hpcjob.report.quantities import QUANTITIES, Quantity
from hpcjob.report.runs import Run
from hpcjob.report.spikes import RULE, Spike
from hpcjob.report.summary import Summary, spikes_of, summarize
from hpcjob.report.tables import Floats, Ints, drawable
from hpcjob.report.thin import thinned
from neoxlite.common.counting import counted

POINTS = 100_000
"""Points of all curves together: at most 3 MB."""
_SERIES_AT_MOST, _SERIES_AT_LEAST = 6_000, 40
_SPIKES, _SPIKES_AT_MOST, _SPIKES_AT_LEAST = 3_000, 200, 10
_MARKS, _MARKS_AT_MOST, _MARKS_AT_LEAST = 40_000, 2_000, 50
_ROWS_AT_MOST = 30
_TITLE_NAMES = 4
_RATES = ("tokens_per_s", "samples_per_s")
_COLUMNS = (
    ("last", "iteration"),
    ("loss", "loss"),
    ("lowest", "lowest"),
    ("lowest_at", "at"),
    ("validation", "validation"),
    ("test", "test"),
    ("tokens_per_s", "tokens/s"),
    ("samples_per_s", "samples/s"),
    ("step_time_ms", "ms/step"),
    ("spikes", "spikes"),
    ("not_finite", "not finite"),
    ("restarts", "restarts"),
    ("repeated", "repeated"),
    ("checkpoints", "checkpoints"),
    ("last_checkpoint", "last one"),
)


@dataclass(frozen=True)
class _Read:
    """A run with what was found in it."""

    run: Run
    spikes: dict[str, list[Spike]]
    summary: Summary


def page(runs: Sequence[Run], names: Sequence[str]) -> str:
    """Return the page of ``runs``, each with iterations, with a chart for each quantity of ``names``."""
    read = [_read(run) for run in runs]
    style, script = _part("report.css"), _part("report.js")
    called = [run.name for run in runs]
    more = f" and {len(called) - _TITLE_NAMES} more" if len(called) > _TITLE_NAMES else ""
    parts = {
        "POLICY": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        "VERSION": html.escape(__version__),
        "TITLE": html.escape("Training runs: " + ", ".join(called[:_TITLE_NAMES]) + more),
        "STYLE": style,
        "SUMMARY": _summary_table([one.summary for one in read]),
        "NOTES": _notes(runs),
        "EVENTS": "\n".join(map(_events, read)),
        "RULE": html.escape(RULE),
        "DATA": script_safe(_data(read, names)),
        "SCRIPT": script,
    }
    return re.sub(r"@@([A-Z]+)@@", lambda match: parts[match[1]], _part("report.html"))


def script_safe(data: Any) -> str:
    """Return JSON that can stand inside ``<script type="application/json">``: nothing in it is markup."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return resources.files("hpcjob.report").joinpath("page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(run: Run) -> _Read:
    spikes = spikes_of(run)
    return _Read(run, spikes, summarize(run, spikes))


def _data(read: Sequence[_Read], names: Sequence[str]) -> dict[str, Any]:
    runs = [one.run for one in read]
    count = sum(run.table.has(name) for run in runs for name in names)
    at_most = int(np.clip(POINTS // max(count, 1), _SERIES_AT_LEAST, _SERIES_AT_MOST))
    marks = int(np.clip(_MARKS // len(runs), _MARKS_AT_LEAST, _MARKS_AT_MOST))
    kinds = sorted({run.x_name for run in runs})
    return {
        "xName": " / ".join(kinds),
        "runs": [
            {
                "name": run.name,
                "restarts": [{"at": one.at, "repeated": one.repeated} for one in run.restarts[-marks:]],
                "checkpoints": _some(run.checkpoints, marks),
            }
            for run in runs
        ],
        "charts": [_chart(quantity, read, at_most) for quantity in QUANTITIES if quantity.name in names],
    }


def _chart(quantity: Quantity, read: Sequence[_Read], at_most: int) -> dict[str, Any]:
    series = []
    for number, one in enumerate(read):
        if one.run.table.has(quantity.name):
            spikes = one.spikes.get(quantity.name, [])
            steps, values = one.run.table.series(quantity.name)
            series.append(
                {"run": number, "kind": "train", **_points(steps, values, at_most), "spikes": _rings(spikes, len(read))}
            )
        if quantity.name == "loss" and one.run.validations:
            held_out = one.run.validations
            steps, values = np.array(list(held_out), np.int64), np.array(list(held_out.values()), np.float64)
            series.append({"run": number, "kind": "validation", **_points(steps, values, at_most)})
    return {"name": quantity.name, "label": quantity.label, "unit": quantity.unit, "series": series}


def _points(steps: Ints, values: Floats, at_most: int) -> dict[str, Any]:
    """Return a series for the page; null is a value that is not finite."""
    chosen = thinned(values, at_most)
    y = [_finite(value) for value in values[chosen].tolist()]
    return {"x": steps[chosen].tolist(), "y": y, "total": len(values)}


def _rings(spikes: Sequence[Spike], runs: int) -> list[dict[str, Any]]:
    at_most = int(np.clip(_SPIKES // runs, _SPIKES_AT_LEAST, _SPIKES_AT_MOST))
    return [
        {"at": spike.at, "value": _finite(spike.value), "usual": _finite(spike.usual), "count": spike.count}
        for spike in _highest(spikes, at_most)
    ]


def _highest(spikes: Sequence[Spike], count: int) -> list[Spike]:
    """Return the spikes that stand out most, in their order; those that are not finite first of all."""

    def height(spike: Spike) -> float:
        return spike.value - spike.usual if np.isfinite(spike.value) and np.isfinite(spike.usual) else np.inf

    chosen = sorted(spikes, key=height, reverse=True)[:count]
    return sorted(chosen, key=lambda spike: spike.first)


def _finite(value: float) -> float | None:
    return value if drawable(np.float64(value)) else None


def _some(values: Sequence[int], count: int) -> list[int]:
    """Return at most ``count`` of the values, evenly spread, the last one among them."""
    if len(values) <= count:
        return list(values)
    return [values[place] for place in np.linspace(0, len(values) - 1, count).astype(int)]


def number(value: float | None) -> str:
    """Return a number as a reader wants it: whole ones with thousands apart, others with 6 digits."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _written(key: str, value: float | None) -> str:
    return rate_text(value) if key in _RATES and value is not None else number(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    heads = "".join(f'<th scope="col">{html.escape(one)}</th>' for one in head)
    body = "".join(
        f'<tr><th scope="row">{html.escape(row[0])}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    hidden = f'<caption class="hidden">{html.escape(caption)}</caption>'
    return f"<table>{hidden}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _summary_table(summaries: Sequence[Summary]) -> str:
    columns = [(key, head) for key, head in _COLUMNS if any(getattr(one, key) is not None for one in summaries)]
    rows = [[one.name, *(_written(key, getattr(one, key)) for key, _ in columns)] for one in summaries]
    return _table(["run", *(head for _, head in columns)], rows, "Each run in numbers")


def _notes(runs: Sequence[Run]) -> str:
    notes = [f"{run.name}: {note}." for run in runs for note in run.notes]
    return "".join(f'<p class="notes">{html.escape(note)}</p>' for note in notes)


def _events(one: _Read) -> str:
    rows = [
        ["restart", number(restart.at), f"{number(restart.repeated)} repeated", restart.source]
        for restart in one.run.restarts[-_ROWS_AT_MOST:]
    ]
    for name, label in _labels(one.spikes).items():
        for spike in _highest(one.spikes[name], _ROWS_AT_MOST):
            told = "not finite" if not spike.finite else f"{number(spike.value)}, usual {number(_finite(spike.usual))}"
            length = "" if spike.count == 1 else f"{spike.count} logged values, {spike.first} to {spike.last}"
            rows.append([f"spike of the {label}", number(spike.at), told, length])
    counts = [counted(len(one.run.restarts), "restart"), counted(len(one.run.checkpoints), "checkpoint")]
    counts += [
        f"{counted(len(one.spikes[name]), 'spike')} of the {label}" for name, label in _labels(one.spikes).items()
    ]
    title = html.escape(f"{one.run.name}: {', '.join(counts)}")
    table = _table(["what", one.run.x_name, "how much", "where"], rows, f"Events of {one.run.name}") if rows else ""
    more = (
        f"<p>The {_ROWS_AT_MOST} highest spikes and the latest {_ROWS_AT_MOST} restarts are listed.</p>"
        if max(len(one.run.restarts), 0, *map(len, one.spikes.values())) > _ROWS_AT_MOST
        else ""
    )
    return f'<details><summary>{title}</summary><div class="scroll">{table}</div>{more}</details>'


def _labels(spikes: Mapping[str, list[Spike]]) -> dict[str, str]:
    return {one.name: one.label.lower() for one in QUANTITIES if spikes.get(one.name)}
