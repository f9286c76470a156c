"""Is fp8's loss within 0.5 % of bf16's, and what does it gain? Pairs of runs of the 1.3B model by seed, and speeds.

    CUDA_VISIBLE_DEVICES=0 python benchmarks/gpu/fp8.py --folder runs/fp8-0 --seeds 1 2    # again until all is done
    CUDA_VISIBLE_DEVICES=1 python benchmarks/gpu/fp8.py --folder runs/fp8-1 --seeds 3 4    # beside it
    python benchmarks/gpu/fp8.py --show runs/fp8-0 runs/fp8-1
    python benchmarks/gpu/fp8.py --folder runs/tiny --tiny                                  # tries it, on a CPU too

500 iterations of micro-batch 4 on the Python files of this machine. A row that is known is not run again; the pairs
that decide come first, then fp8's other recipe, bf16 with another cut of the batch (which differs by roundings alone,
so that its scatter is chance), then the speeds that --speeds asks for. Why this rate: see `SMOOTH`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import curves
import table
from rows import Row

ITERATIONS = 500
BOUND = 0.005
SMOOTH = "warmup=0.3:optimizer.params.lr=0.0001"
"""At the shipped rate of 2e-4, meant for batches a hundred times as large, and a warm-up of 50 iterations the loss
leaps up at iterations 5 to 15; runs leave that apart, also those that differ by roundings alone, and stay apart by 0.3
to 0.7 % for hundreds of iterations. A warm-up three times as long made a small model's runs ten times as close.
"""
FIRST = f"1-3B:4:{SMOOTH}"
PAIR = [FIRST, f"1-3B:4:fp8:{SMOOTH}"]
MORE = [f"1-3B:4:fp8-fastest:{SMOOTH}", f"1-3B:2:gas=2:{SMOOTH}"]
SPEEDS = ["1-3B:16:fp8", "2-7B:8:fp8", "1-3B:16", "2-7B:8", "1-3B:16:fp8-fastest", "2-7B:8:fp8-fastest"]
TINY = (
    ":num_layers=4:hidden_size=64:num_attention_heads=4:seq=64:make_vocab_size_divisible_by=128"
    ":kernels.fused_gelu=true:kernels.fused_rotary=true"
)


def main() -> None:
    """Run what is not known yet and can begin before the limit, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/fp8"), help="of tokens and results, kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4], metavar="SEED")
    parser.add_argument("--speeds", action="store_true", help="measure them too, behind the curves")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FOLDER", help="only print what these hold together")
    parser.add_argument("--limit", type=float, default=450, metavar="SECONDS", help="begin no row behind it")
    parser.add_argument("--row-limit", type=float, default=240, metavar="SECONDS", help="longest time of a row")
    parser.add_argument("--tiny", action="store_true", help="the 19M model with 64 features, 12 iterations")
    options = parser.parse_args()
    folders = [folder.absolute() for folder in options.show or [options.folder]]
    if not options.show:
        _run(folders[0], options)
    first = _tiny(FIRST) if options.tiny else FIRST
    curves.show(curves.known(folder / "curves.json" for folder in folders), first, BOUND)
    for folder in folders:
        table.show(table.known(folder / "speeds.json"))


def _run(folder: Path, options: argparse.Namespace) -> None:
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    speeds = folder / "speeds.json"
    results = table.known(speeds)
    results["cards"].append(table.card())
    for kind, text in _order(options):
        if time.monotonic() - began > options.limit:
            print(f"not begun, call again: {text}", file=sys.stderr)
            continue
        row = Row.parse(_tiny(text) if options.tiny else text)
        iterations = 12 if options.tiny else ITERATIONS if kind == "curve" else table.ITERATIONS
        try:
            if kind == "curve":
                curves.add(row, folder / "curves.json", folder / "tokens", iterations, options.row_limit)
            else:
                table.add(row, results, speeds, folder / "tokens", iterations, options.row_limit)
        except RuntimeError as error:
            print(f"{row.text}: {error}", file=sys.stderr)
        print(f"{time.monotonic() - began:4.0f} s  {kind} {row.text}", file=sys.stderr, flush=True)


def _order(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return all rows, the most telling ones first."""
    rows = [("curve", text) for rows in (PAIR, MORE) for text in curves.of_seeds(rows, options.seeds)]
    return rows + [("speed", text) for text in SPEEDS if options.speeds]


def _tiny(text: str) -> str:
    return f"19M:{text.partition(':')[2]}{TINY}"


if __name__ == "__main__":
    main()
