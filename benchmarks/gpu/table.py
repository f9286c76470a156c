"""Tokens per second on one GPU: `neoxlite train`, Hugging Face's model, a bare torch loop, and the card's own limit.

    python benchmarks/gpu/table.py --results gpu.json 1-3B:8 1-3B:8:hf-compiled 1-3B:8:loop 2-7B:8:fp8 1-3B:8:gas=8
    python benchmarks/gpu/table.py --results gpu.json --show

A row is SIZE:MICRO[:WHO][:KEY=VALUE]...; WHO is neoxlite (the default), plain (nothing compiled or fused, DeepSpeed's
own optimizer), unfused (without the hand-written backward kernels), fp16, fp8, fp8-fastest (its other recipe), loop,
hf, hf-compiled, hf-layers or litgpt; keys are those of the trainer, or seq, gas, recompute. Rows of one call run on
one card, one after the other; --results keeps what is done, and a call with the same file goes on with the rest, to fit
short allocations (--limit). bf16, sequence 2,048, vocabulary of 50,304, gradient accumulation 1, no recomputation,
unless a row says otherwise; the trainer reads the Python files here, the others random tokens. Medians of iterations 21
to 60, for the peers of steps 7 to 24.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import trainer_row
from rows import PEAK_TFLOPS, PEERS, Row, keep

ITERATIONS = 60
ROWS = [
    *(
        f"{size}:{who}"
        for size in ("125M:32", "350M:16", "1-3B:16", "2-7B:8")
        for who in ("neoxlite", "loop", "hf-layers")
    ),
    "1-3B:8",
    *(f"{size}:{who}" for size in ("1-3B:16", "2-7B:8") for who in ("fp8", "fp8-fastest")),
]


def matmul_tflops(size: int = 8192, seconds: float = 4.0) -> float:
    """Sustained bf16 rate of square products of random matrices, in 10^12 FLOP/s."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(10):
            a @ b
        torch.cuda.synchronize()
        count += 10
    return 2 * size**3 * count / (time.perf_counter() - start) / 1e12


def card() -> dict[str, Any]:
    """Return what the rows ran on; without a GPU, to try a script, a rate that is no rate."""
    if not torch.cuda.is_available():
        nothing = dict.fromkeys(("driver", "cudnn"))
        return {"card": "CPU", "torch": torch.__version__, "python": "", "date": "", "matmul_tflops": 1.0, **nothing}
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"], capture_output=True, text=True
    )
    return {
        "card": torch.cuda.get_device_name(),
        "driver": driver.stdout.strip(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": sys.version.split()[0],
        "date": datetime.date.today().isoformat(),
        "matmul_tflops": matmul_tflops(),
    }


def peer(row: Row, limit_s: float) -> dict[str, Any]:
    """Run a row that is not the trainer. NEOXLITE_PEER_PATH, where set, is its PYTHONPATH."""
    environment = dict(os.environ)
    if row.who != "loop" and "NEOXLITE_PEER_PATH" in environment:
        environment["PYTHONPATH"] = environment["NEOXLITE_PEER_PATH"]
    command = [sys.executable, str(Path(__file__).with_name("peer_row.py")), row.text]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=environment)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done in {limit_s:.0f} s") from None
    if run.returncode:
        raise RuntimeError(f"exit {run.returncode}: {run.stderr[-2500:]}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def show(results: dict[str, Any]) -> None:
    """Print the table."""
    for number, on in enumerate(results["cards"]):
        print(
            f"card {number}: {on['card']}, driver {on['driver']}, torch {on['torch']}, cuDNN {on['cudnn']}, Python "
            f"{on['python']}, {on['date']}; matrix products of 8,192^2 sustain {on['matmul_tflops']:.0f} TFLOP/s"
        )
    print(
        f"{'row':<34} {'card':>4} {'tokens/s':>9} {'ms/step':>8} {'MFU full':>8} {'causal':>7} {'of matmul':>9} "
        f"{'peak GiB':>8} {'start s':>7} {'wait':>6} {'MHz':>5} {'W':>4} {'loss':>8}"
    )
    for text, found in results["rows"].items():
        if "error" in found:
            first, *more = found["error"].strip().splitlines()
            print(f"{text:<34} {found['card']:>4} {' ... '.join([first[:40], *more[-1:]])[:150]}")
            continue
        full, causal = (flops * found["tokens_per_s"] / 1e12 for flops in Row.parse(text).flops_per_token())
        ceiling = results["cards"][found["card"]]["matmul_tflops"]
        clock, power = _whole(found.get("sm_clock_mhz")), _whole(found.get("power_w"))
        print(
            f"{text:<34} {found['card']:>4} {found['tokens_per_s']:>9,.0f} {found['ms']:>8.1f} "
            f"{full / PEAK_TFLOPS:>8.1%} {causal / PEAK_TFLOPS:>7.1%} {causal / ceiling:>9.1%} "
            f"{found['peak_gib']:>8.1f} {found['start_s']:>7.1f} {_percent(found.get('data_wait')):>6} {clock:>5} "
            f"{power:>4} {_loss(found['loss'])}"
        )
        for note in found.get("notes", []):
            print(f"    {note}")


def _loss(value: float | None) -> str:
    return f"{'skipped':>8}" if value is None else f"{value:>8.4f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.2%}"


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def main() -> None:
    """Measure the rows that are not there yet, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS, metavar="ROW")
    parser.add_argument("--results", type=Path, default=Path("gpu.json"), metavar="FILE")
    parser.add_argument("--show", action="store_true", help="only print the table")
    parser.add_argument("--limit", type=float, default=480, metavar="SECONDS", help="begin no row behind it")
    parser.add_argument("--row-limit", type=float, default=240, metavar="SECONDS", help="longest time of a row")
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--data", type=Path, help="folder of the tokens, kept; else a temporary one")
    options = parser.parse_args()
    began = time.monotonic()
    results = known(options.results)
    if not options.show:
        rows = [Row.parse(text) for text in options.rows]
        results["cards"].append(card())
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.data or Path(temporary)).absolute()
            for row in rows:
                if time.monotonic() - began <= options.limit:
                    add(row, results, options.results, folder, options.iterations, options.row_limit)
    show(results)


def known(path: Path) -> dict[str, Any]:
    """Return the results of earlier calls."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cards": [], "rows": {}}
    return found


def add(row: Row, results: dict[str, Any], path: Path, folder: Path, iterations: int, limit_s: float) -> None:
    """Measure a row that is not there yet, on the last card, and keep it."""
    if "ms" in results["rows"].get(row.text, {}):
        return
    try:
        if row.who in PEERS:
            found = peer(row, limit_s)
        else:
            trainer_row.prepare(folder)
            found = trainer_row.measure(row, folder, iterations, limit_s)
    except RuntimeError as error:
        found = {"error": str(error)}
    results["rows"][row.text] = {**found, "card": len(results["cards"]) - 1}
    keep(path, results)
    print(f"{row.text}: {found.get('tokens_per_s') or found['error']}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
