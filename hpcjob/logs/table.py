"""The iteration table of ``tail --loss``: one aligned line for each logged iteration."""

from __future__ import annotations

import math

from hpcjob.logs.events import Checkpoint, Event, Iteration, Validation

TABLE = (Iteration, Validation, Checkpoint)
"""Kinds of events that are rows of the table."""
_HEADINGS = ("loss", "lr", "{rate}", "TFLOPS", "s/iter", "ETA")
_WIDTHS = (10, 10, 10, 7, 9, 12)
_ROW = " ".join(("%*s", *(f"%{width}s" for width in _WIDTHS)))


class IterationTable:
    """Lay out rows; columns keep their width, the first one grows with the number of iterations.

    Args:
        tokens: the rate is tokens a second, else samples a second.
    """

    def __init__(self, *, tokens: bool) -> None:
        self.tokens = tokens
        self._first_width = len("iteration")

    def fit(self, event: Event) -> bool:
        """Widen the first column so that an iteration of this run fits in; return whether that was needed."""
        if not isinstance(event, Iteration):
            return False
        needed = len(_at(event)) if event.train_iters is None else 2 * len(str(event.train_iters)) + 1
        before, self._first_width = self._first_width, max(self._first_width, needed)
        return needed > before

    def header(self) -> str:
        """Return the headings."""
        rate = "tokens/s" if self.tokens else "samples/s"
        return self._join("iteration", [heading.format(rate=rate) for heading in _HEADINGS], "")

    def row(self, event: Event) -> str:
        """Return an iteration, validation or checkpoint as a row."""
        if isinstance(event, Iteration):
            return self._iteration(event)
        if isinstance(event, Validation):
            return self._validation(event)
        if isinstance(event, Checkpoint):
            at = "" if event.iteration is None else str(event.iteration)
            note = f"checkpoint {event.action}" + (f": {event.path}" if event.path else "")
            return self._join(at, [""] * len(_WIDTHS), note)
        raise TypeError(type(event))

    def _iteration(self, event: Iteration) -> str:
        at = _at(event)
        eta = ""
        if event.train_iters is not None and event.iteration is not None:
            at += f"/{event.train_iters}"
            if event.iteration_time_ms is not None and math.isfinite(event.iteration_time_ms):
                eta = duration((event.train_iters - event.iteration) * event.iteration_time_ms / 1000)
        rate = event.tokens_per_s if self.tokens else event.samples_per_s
        cells = [
            "" if event.loss is None else _loss(event.loss),
            "" if event.lr is None else f"{event.lr:.3e}",
            "" if rate is None else rate_text(rate),
            tflops_text(event.tflops) if event.tflops else "",
            "" if event.iteration_time_ms is None else f"{event.iteration_time_ms / 1000:.3f}",
            eta,
        ]
        return self._join(at, cells, ", ".join(_notes(event)))

    def _validation(self, event: Validation) -> str:
        at = "" if event.iteration is None else str(event.iteration)
        note = "test" if event.of_test else "validation"
        if event.iteration is None:
            note += f" at {event.at}"
        if event.perplexity is not None:
            note += f", perplexity {event.perplexity:.4g}"
        return self._join(at, [_loss(event.loss), *[""] * (len(_WIDTHS) - 1)], note)

    def _join(self, first: str, cells: list[str], note: str) -> str:
        row = _ROW % (self._first_width, first, *cells)
        return f"{row}  {note}" if note else row.rstrip()


def _at(event: Iteration) -> str:
    if event.iteration is not None:
        return str(event.iteration)
    return "" if event.epoch is None else f"ep {event.epoch:g}"


def _notes(event: Iteration) -> list[str]:
    notes = []
    if not event.finite:
        notes.append("NOT FINITE")
    if event.nan:
        notes.append(f"{event.nan} NaN")
    if event.loss is None and event.skipped:
        notes.append("no loss")
    if event.skipped:
        notes.append(f"{event.skipped} skipped")
    if event.loss_scale is not None and event.loss_scale != 1:
        notes.append(f"scale {event.loss_scale:g}")
    if event.mfu_percent is not None:
        notes.append(f"MFU {event.mfu_percent:.1f}%")
    return notes


def _loss(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:+}".replace("inf", "Inf")
    return f"{value:.6f}" if 1e-3 <= abs(value) < 1000 or value == 0 else f"{value:.3e}"


def rate_text(value: float) -> str:
    """Write tokens or samples a second: ``56,005``, ``288``, ``27.3``."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def tflops_text(value: float) -> str:
    """Write TFLOPS: ``430.1``, ``8.5``, of a small run on a CPU ``0.0140``."""
    return f"{value:.1f}" if value >= 1 else f"{value:#.3g}"


def duration(seconds: float) -> str:
    """Write a time: ``12:34``, ``1:02:03``, ``4d 07:58:01``."""
    whole = max(0, round(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02d}:{minutes:02d}:{left:02d}"
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
