"""Loss curves of the same training computed in several ways: what is fused beside the plain eager path.

    python benchmarks/gpu/numerics.py --seeds 1 2 3 4 --results a.json 125M:32:plain 125M:32 125M:16:plain:gas=2
    python benchmarks/gpu/numerics.py --show a.json b.json                # what two calls found, on two GPUs

The first row is what the others are compared with. The same batch in two micro-batches instead of one differs from it
by the order of bf16 roundings alone: its distance is the noise that another distance has to be held against. One run
of each tells little, for runs that parted stay apart: --seeds has each row run with each (of the initial weights and
the order of the data), and the differences of pairs are averaged. Rows as in `table.py`; with --results a later call
trains only what is not there yet.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import curves
from rows import Row


def main() -> None:
    """Train all rows and print the distances of their losses from the first one's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="run each row with each, seed by seed")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--data", type=Path, help="folder of the tokens, kept; else a temporary one")
    parser.add_argument("--results", type=Path, metavar="FILE", help="all losses, as JSON")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="only print what these results hold")
    parser.add_argument("--bound", type=float, metavar="PERCENT", help="say whether the mean difference is within it")
    parser.add_argument("--limit", type=float, default=480, metavar="SECONDS", help="begin no row behind it")
    parser.add_argument("--row-limit", type=float, default=240, metavar="SECONDS", help="longest time of a row")
    options = parser.parse_args()
    bound = None if options.bound is None else options.bound / 100
    if options.show:
        found = curves.known(options.show)
        first = (options.rows or [*found, ""])[0]
        curves.show(found, curves.without_seed(first), bound)
        return
    if not options.rows:
        parser.error("name rows, or results to --show")
    rows = [Row.parse(text) for text in curves.of_seeds(options.rows, options.seeds)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.data or Path(temporary)).absolute()
        results = options.results or Path(temporary) / "curves.json"
        for row in rows:
            if time.monotonic() - began > options.limit:
                print(f"not begun, call again: {row.text}", file=sys.stderr)
                continue
            try:
                curves.add(row, results, folder, options.iterations, options.row_limit)
            except RuntimeError as error:
                print(f"{row.text}: {error}", file=sys.stderr)
            print(f"{time.monotonic() - began:4.0f} s  {row.text}", file=sys.stderr, flush=True)
        found = curves.known([results])
    curves.show(
        {row.text: found[row.text] for row in rows if row.text in found}, curves.without_seed(rows[0].text), bound
    )


if __name__ == "__main__":
    main()
