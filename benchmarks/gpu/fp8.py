"""What fp8 gains and what it costs, by recipe: loss of 500 iterations and speed at 1.3B and 2.7B, on one GPU.

    python benchmarks/gpu/fp8.py --folder runs/fp8                  # again until nothing is left
    python benchmarks/gpu/fp8.py --folder runs/fp8 --tiny           # tries the script, on a CPU too

Rows are in the order of their worth, and a row that is known is not run again. The curves are of micro-batch 4 on the
Python files of this machine. ``1-3B:2:gas=2`` has the batches of ``1-3B:4`` and other roundings: what it differs by is
what a difference means nothing below. A warm-up of 50 iterations keeps the loss from spikes, which fall by chance and
move the mean of the last 50 for long; rows without it are those of docs/performance.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numerics
import table
from rows import Row

ITERATIONS = 500
WARM = "warmup=0.1"
CURVES = [
    [f"1-3B:4:{WARM}", f"1-3B:4:fp8:{WARM}", f"1-3B:2:gas=2:{WARM}", f"1-3B:4:fp8-fastest:{WARM}"],
    ["1-3B:4", "1-3B:4:fp8", "1-3B:2:gas=2", "1-3B:4:fp8-fastest"],
]
SPEEDS = ["1-3B:16:fp8", "2-7B:8:fp8", "1-3B:16", "2-7B:8", "1-3B:16:fp8-fastest", "2-7B:8:fp8-fastest"]
TINY = (
    ":num_layers=4:hidden_size=64:num_attention_heads=4:seq=64:make_vocab_size_divisible_by=128"
    ":kernels.fused_gelu=true:kernels.fused_rotary=true"
)


def main() -> None:
    """Run what is not known yet and can begin before the limit, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/fp8"), help="of tokens and results, kept")
    parser.add_argument("--limit", type=float, default=450, metavar="SECONDS", help="begin no row behind it")
    parser.add_argument("--row-limit", type=float, default=240, metavar="SECONDS", help="longest time of a row")
    parser.add_argument("--tiny", action="store_true", help="the 19M model with 64 features, 12 iterations")
    options = parser.parse_args()
    began = time.monotonic()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    curves, speeds = folder / "curves.json", folder / "speeds.json"
    results = table.known(speeds)
    results["cards"].append(table.card())
    for kind, text in _order():
        if time.monotonic() - began > options.limit:
            print(f"not begun, call again: {text}", file=sys.stderr)
            continue
        row = Row.parse("19M:" + text.partition(":")[2] + TINY if options.tiny else text)
        iterations = 12 if options.tiny else ITERATIONS if kind == "curve" else table.ITERATIONS
        try:
            if kind == "curve":
                numerics.add(row, curves, folder / "tokens", iterations, options.row_limit)
            else:
                table.add(row, results, speeds, folder / "tokens", iterations, options.row_limit)
        except RuntimeError as error:
            print(f"{row.text}: {error}", file=sys.stderr)
        print(f"{time.monotonic() - began:4.0f} s  {kind} {row.text}", file=sys.stderr, flush=True)
    found = numerics.known(curves)
    for group in CURVES:
        alike = {text: curve for text, curve in found.items() if (WARM in text) == (WARM in group[0])}
        if alike:
            numerics.show(alike)
    table.show(results)


def _order() -> list[tuple[str, str]]:
    """Return all rows, the most telling ones first."""
    warm, sudden = ([("curve", text) for text in group] for group in CURVES)
    speeds = [("speed", text) for text in SPEEDS]
    return [*warm[:3], *speeds[:2], warm[3], *speeds[2:], *sudden]


if __name__ == "__main__":
    main()
