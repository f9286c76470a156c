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
import tempfile
from pathlib import Path

import trainer_row
from rows import Row


def main() -> None:
    """Train all rows and print the distances of their losses from the first one's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="ROW")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--data", type=Path, help="folder of the tokens, kept; else a temporary one")
    parser.add_argument("--results", type=Path, metavar="FILE", help="all losses, as JSON")
    parser.add_argument("--row-limit", type=float, default=400, metavar="SECONDS")
    options = parser.parse_args()
    rows = [Row.parse(text) for text in options.rows]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.data or Path(temporary)).absolute()
        results = options.results or Path(temporary) / "curves.json"
        for row in rows:
            add(row, results, folder, options.iterations, options.row_limit)
        curves = known(results)
    show({row.text: curves[row.text] for row in rows})


def known(path: Path) -> dict[str, list[float]]:
    """Return the losses of earlier calls by row."""
    curves: dict[str, list[float]] = json.loads(path.read_text()) if path.exists() else {}
    return curves


def add(row: Row, path: Path, folder: Path, iterations: int, limit_s: float) -> None:
    """Train a row that is not there yet, or was shorter, and keep its losses."""
    curves = known(path)
    if len(curves.get(row.text, [])) >= iterations:
        return
    trainer_row.prepare(folder)
    trainer_row.measure(row, folder, iterations, limit_s, interval=1)
    path.write_text(json.dumps({**curves, row.text: trainer_row.losses(row, folder)}))


def show(curves: dict[str, list[float]]) -> None:
    """Print how far the curves are from the first one."""
    first = next(iter(curves.values()))
    print(f"{'row':<34} {'mean of last 50':>15} {'to first':>9} {'mean |difference|':>17} {'largest':>9} {'at':>5}")
    for text, curve in curves.items():
        last, reference = (statistics.mean(losses[-50:]) for losses in (curve, first))
        apart = [abs(a - b) for a, b in zip(curve, first, strict=True)]
        largest = max(apart)
        print(
            f"{text:<34} {last:>15.5f} {last / reference - 1:>+9.3%} {statistics.mean(apart):>17.2e} {largest:>9.2e} "
            f"{apart.index(largest) + 1:>5}"
        )


if __name__ == "__main__":
    main()
