"""Losses of rows of `numerics.py` and `fp8.py`, kept as JSON, and how far those of one seed and of all are apart."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

import trainer_row
from paired import Paired
from rows import Row, keep

LAST = 50
"""Iterations whose mean loss is compared."""
_SEED = "seed="


class Curve(TypedDict):
    """What a row gave."""

    losses: list[float | None]
    """One an iteration; None where the step was skipped."""
    tokens_per_s: float
    """While each iteration was logged, which waits for it."""


Curves = dict[str, Curve]
"""By the text of the row."""


def known(paths: Iterable[Path]) -> Curves:
    """Return what the files hold, of a row in several the longest."""
    curves: Curves = {}
    for path in paths:
        for text, curve in (json.loads(path.read_text()) if path.exists() else {}).items():
            if len(curve["losses"]) > len(curves.get(text, {"losses": []})["losses"]):
                curves[text] = curve
    return curves


def add(row: Row, path: Path, folder: Path, iterations: int, limit_s: float) -> None:
    """Train a row that is not there yet, or was shorter, and keep its losses. Raises RuntimeError if it fails."""
    curves = known([path])
    if row.text in curves and len(curves[row.text]["losses"]) >= iterations:
        return
    trainer_row.prepare(folder)
    found = trainer_row.measure(row, folder, iterations, limit_s, interval=1)
    curve = Curve(losses=trainer_row.losses(row, folder), tokens_per_s=found["tokens_per_s"])
    keep(path, {**curves, row.text: curve})


def of_seeds(texts: Sequence[str], seeds: Iterable[int] | None) -> list[str]:
    """Return the rows with each seed, seed by seed: pairs are complete as early as they can. None: as they are."""
    if seeds is None:
        return list(texts)
    return [f"{text}:{_SEED}{seed}" for seed in seeds for text in texts]


def show(curves: Curves, reference: str, bound: float | None = None) -> None:
    """Print all curves beside the reference's of the same seed, and what all seeds say together.

    Args:
        reference: a row without its seed.
        bound: on the relative difference of the mean loss of the last 50 iterations.
    """
    firsts = {_seed(text): curve for text, curve in curves.items() if without_seed(text) == reference}
    over: dict[str, list[float]] = {}
    print(
        f"{'row':<46} {'mean of last 50':>15} {'to first':>9} {'mean |difference|':>17} {'largest':>9} {'at':>5} "
        f"{'tokens/s':>9}"
    )
    for text, curve in curves.items():
        last, first = _last(curve), firsts.get(_seed(text))
        if last is None:
            print(f"{text:<46} no losses")
            continue
        line = f"{text:<46} {last:>15.5f} "
        apart = None if first is None else _apart(curve, first)
        line += f"{'':>43}" if apart is None else _columns(*apart)
        print(f"{line} {curve['tokens_per_s']:>9,.0f}")
        if apart is not None and without_seed(text) != reference:
            over.setdefault(without_seed(text), []).append(apart[0])
    for text, values in over.items():
        print(f"{text} beside {reference}: {Paired(values).verdict(bound)}")


def without_seed(text: str) -> str:
    """Return a row's text without its seed."""
    return ":".join(word for word in text.split(":") if not word.startswith(_SEED))


def _seed(text: str) -> str | None:
    return next((word for word in text.split(":") if word.startswith(_SEED)), None)


def _last(curve: Curve) -> float | None:
    losses = [loss for loss in curve["losses"] if loss is not None]
    return statistics.mean(losses[-LAST:]) if losses else None


def _apart(curve: Curve, first: Curve) -> tuple[float, dict[int, float]] | None:
    """Return the relative difference of the last losses, and the absolute one by iteration, up to the shorter's end."""
    both = enumerate(zip(curve["losses"], first["losses"], strict=False), 1)
    pairs = {number: (a, b) for number, (a, b) in both if a is not None and b is not None}
    if not pairs:
        return None
    last, reference = (statistics.mean(pair[side] for pair in [*pairs.values()][-LAST:]) for side in (0, 1))
    return last / reference - 1, {number: abs(a - b) for number, (a, b) in pairs.items()}


def _columns(last: float, apart: dict[int, float]) -> str:
    farthest = max(apart, key=lambda number: apart[number])
    return f"{last:>+9.3%} {statistics.mean(apart.values()):>17.2e} {apart[farthest]:>9.2e} {farthest:>5}"
