"""Loss curves of the same training computed in several ways: what is fused beside the plain eager path.

    python benchmarks/gpu/numerics.py --iterations 200 125M:32:plain 125M:16:plain:gas=2 125M:32
    python benchmarks/gpu/numerics.py --iterations 500 1-3B:8 1-3B:8:fp8

The first row is what the others are compared with. The same batch in two micro-batches instead of one differs from it
by the order of bf16 roundings alone: its distance is the noise that another distance has to be held against. Rows as
in `table.py`; with --results a later call trains only what is not there yet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import trainer_row
from rows import Row, keep


def main() -> None:
    """Train all rows and print the distances of their losses from the first one's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="ROW")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--data", type=Path, help="folder of the tokens, kept; else a temporary one")
    parser.add_argument("--results", type=Path, metavar="FILE", help="all losses, as JSON")
    parser.add_argument("--limit", type=float, default=480, metavar="SECONDS", help="begin no row behind it")
    parser.add_argument("--row-limit", type=float, default=240, metavar="SECONDS", help="longest time of a row")
    options = parser.parse_args()
    began = time.monotonic()
    rows = [Row.parse(text) for text in options.rows]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.data or Path(temporary)).absolute()
        results = options.results or Path(temporary) / "curves.json"
        for row in rows:
            if time.monotonic() - began > options.limit:
                print(f"not begun, call again: {row.text}", file=sys.stderr)
                continue
            try:
                add(row, results, folder, options.iterations, options.row_limit)
            except RuntimeError as error:
                print(f"{row.text}: {error}", file=sys.stderr)
            print(f"{time.monotonic() - began:4.0f} s  {row.text}", file=sys.stderr, flush=True)
        curves = known(results)
    show({row.text: curves[row.text] for row in rows if row.text in curves})


Curves = dict[str, list[float | None]]
"""Losses by row, one an iteration; None where the step was skipped."""


def known(path: Path) -> Curves:
    """Return the losses of earlier calls."""
    curves: Curves = json.loads(path.read_text()) if path.exists() else {}
    return curves


def add(row: Row, path: Path, folder: Path, iterations: int, limit_s: float) -> None:
    """Train a row that is not there yet, or was shorter, and keep its losses."""
    curves = known(path)
    if len(curves.get(row.text, [])) >= iterations:
        return
    trainer_row.prepare(folder)
    trainer_row.measure(row, folder, iterations, limit_s, interval=1)
    keep(path, {**curves, row.text: trainer_row.losses(row, folder)})


def show(curves: Curves) -> None:
    """Print how far the curves are from the first one, up to the end of the shorter of the two."""
    print(f"{'row':<34} {'mean of last 50':>15} {'to first':>9} {'mean |difference|':>17} {'largest':>9} {'at':>5}")
    for text, curve in curves.items():
        both = zip(curve, next(iter(curves.values())), strict=False)
        pairs = {number: (a, b) for number, (a, b) in enumerate(both, 1) if a is not None and b is not None}
        if not pairs:
            print(f"{text:<34} no losses")
            continue
        last, reference = (statistics.mean(pair[side] for pair in [*pairs.values()][-50:]) for side in (0, 1))
        apart = {number: abs(a - b) for number, (a, b) in pairs.items()}
        farthest = max(apart, key=lambda number: apart[number])
        print(
            f"{text:<34} {last:>15.5f} {last / reference - 1:>+9.3%} {statistics.mean(apart.values()):>17.2e} "
            f"{apart[farthest]:>9.2e} {farthest:>5}"
        )


if __name__ == "__main__":
    main()
