"""Tokens per second of `neoxlite train` on one GPU, beside the matrix products that this card sustains in the same run.

    python benchmarks/gpu_train.py 125M:32 125M:32:plain 1-3B:8 2-7B:8        # size:micro-batch[:plain]

The real trainer with its loader, clipping, logging and the DeepSpeed engine, in bf16 with ZeRO-1, sequence 2,048, no
recomputation, on the Python files of this machine; median of the logged intervals from the fourth on (iterations 16 to
40). ``plain``: blocks not compiled, loss apart from the head, DeepSpeed's own optimizer. Needs CUDA.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

ITERATIONS, INTERVAL, LIMIT_S = 40, 5, 240
MEDIANS = ("tokens_per_s", "tflops", "iteration_time_ms", "loss")
NEOXLITE = [sys.executable, "-m", "neoxlite"]
DATA = """
train_data_paths: [train_text_document]
valid_data_paths: [valid_text_document]
test_data_paths: [valid_text_document]
tokenizer_type: HFTokenizer
vocab_file: tokenizer.json
"""


def matmul_tflops(size: int = 8192, seconds: float = 2.0) -> float:
    """Sustained bf16 rate of square matrix products, in 10^12 FLOP/s."""
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


def prepare(folder: Path) -> None:
    """Write tokens of this machine's Python files."""
    tokenizer = ["--tokenizer-type", "HFTokenizer", "--vocab-file", "tokenizer.json", "--append-eod"]
    steps = [["collect-python", "--output", "text"]]
    steps += [["train-tokenizer", "--input", "text/train.jsonl", "--vocab-size", "4096", "--output", "tokenizer.json"]]
    for name in ("train", "valid"):
        steps += [["tokenize", "--input", f"text/{name}.jsonl", "--output-prefix", name, *tokenizer]]
    for step in steps:
        subprocess.run([*NEOXLITE, "data", *step], cwd=folder, check=True, capture_output=True)
    (folder / "data.yml").write_text(DATA)


PLAIN = {
    "kernels.compile_blocks": "false",
    "kernels.fused_head_loss": "false",
    "zero_optimization.implementation": "deepspeed",
}


def train(folder: Path, size: str, micro_batch: int, variant: str) -> dict[str, float]:
    """Train and return the medians of the logged intervals, and the seconds from the command to the first of them."""
    keys = {
        "train_iters": ITERATIONS,
        "lr_decay_iters": ITERATIONS,
        "log_interval": INTERVAL,
        "make_vocab_size_divisible_by": 50304,  # the head of a GPT-2 vocabulary, whatever the tokenizer
        "eval_interval": ITERATIONS + 1,
        "eval_iters": 1,
        "train_micro_batch_size_per_gpu": micro_batch,
        "checkpoint_activations": "false",
        **(PLAIN if variant == "plain" else {}),
    }
    metrics = folder / f"{size}-{variant}.jsonl"
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    environment = {**os.environ, "NEOXLITE_METRICS_FILE": str(metrics)}
    command = [*NEOXLITE, "train", f"{size}.yml", "data.yml", *settings]
    began = time.time()
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    if run.returncode:
        raise RuntimeError(f"{size}: exit {run.returncode}\n{run.stdout[-1500:]}\n{run.stderr[-3000:]}")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    rows = [row for row in rows if "iteration_time_ms" in row]
    found = {key: statistics.median(row[key] for row in rows[3:]) for key in MEDIANS}
    return {**found, "start_s": time.time() - began - sum(row["iteration_time_ms"] for row in rows) * INTERVAL / 1000}


def main(runs: list[str]) -> None:
    """Print one line a model size."""
    ceiling = matmul_tflops()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, matrix products {ceiling:.0f} TFLOP/s")
    print("model    micro variant    tokens/s   ms/step   TFLOP/s  of matmul  start s    loss")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for run in runs:
            size, micro, variant = (*run.split(":"), "default")[:3]
            try:
                row = train(folder, size, int(micro), variant)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(error, flush=True)
                continue
            figures = (
                f"{row['tokens_per_s']:>10,.0f} {row['iteration_time_ms']:>9.1f} {row['tflops']:>9.1f} "
                f"{row['tflops'] / ceiling:>10.1%} {row['start_s']:>8.1f} {row['loss']:>7.4f}"
            )
            print(f"{size:<8} {micro:>5} {variant:<8} {figures}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["125M:32", "125M:32:plain", "350M:16", "1-3B:8", "1-3B:8:plain", "2-7B:8"])
