"""Loss curves of the same training computed in several ways: what is fused beside the plain eager path.

    python benchmarks/gpu/numerics.py --iterations 200 125M:32:plain 125M:16:plain:gas=2 125M:32
    python benchmarks/gpu/numerics.py --iterations 500 1-3B:8 1-3B:8:fp8

The first row is what the others are compared with. The same batch in two micro-batches instead of one differs from it
by the order of bf16 roundings alone: its distance is the noise that another distance has to be held against. Rows as
in `table.py`.
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
    parser.add_argument("--results", type=Path, metavar="FILE", help="write all losses there, as JSON")
    parser.add_argument("--row-limit", type=float, default=400, metavar="SECONDS")
    options = parser.parse_args()
    curves: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.data or Path(temporary)).absolute()
        trainer_row.prepare(folder)
        for text in options.rows:
            row = Row.parse(text)
            trainer_row.measure(row, folder, options.iterations, options.row_limit, interval=1)
            curves[text] = trainer_row.losses(row, folder)
            if options.results:
                options.results.write_text(json.dumps(curves))
    first = curves[options.rows[0]]
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
