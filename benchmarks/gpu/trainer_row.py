"""A row of `table.py` that is `neoxlite train` itself, with its loader, clipping, log, TensorBoard and engine."""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rows import PEAK_TFLOPS, VOCABULARY, Row

NEOXLITE = [sys.executable, "-m", "neoxlite"]
INTERVAL = 5
HARDWARE = ("sm_clock_mhz", "power_w")
DATA = """
train_data_paths: [train_text_document]
valid_data_paths: [valid_text_document]
test_data_paths: [valid_text_document]
tokenizer_type: HFTokenizer
vocab_file: tokenizer.json
"""


def prepare(folder: Path) -> None:
    """Write tokens of this machine's Python files, once a folder."""
    if (folder / "data.yml").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = ["--tokenizer-type", "HFTokenizer", "--vocab-file", "tokenizer.json", "--append-eod"]
    steps = [["collect-python", "--output", "text"]]
    steps += [["train-tokenizer", "--input", "text/train.jsonl", "--vocab-size", "4096", "--output", "tokenizer.json"]]
    for name in ("train", "valid"):
        steps += [["tokenize", "--input", f"text/{name}.jsonl", "--output-prefix", name, *tokenizer]]
    for step in steps:
        subprocess.run([*NEOXLITE, "data", *step], cwd=folder, check=True, capture_output=True)
    (folder / "data.yml").write_text(DATA)


def measure(row: Row, folder: Path, iterations: int, limit_s: float, interval: int = INTERVAL) -> dict[str, Any]:
    """Train and return the medians of the intervals from iteration 20 on, and the seconds to the first step.

    Raises:
        RuntimeError: the run failed or took too long; the message has the end of its output.
    """
    keys = {
        "train_iters": iterations,
        "lr_decay_iters": iterations,
        "log_interval": interval,
        "make_vocab_size_divisible_by": VOCABULARY,  # the head of a GPT-2 vocabulary, whatever the tokenizer
        "eval_interval": iterations + 1,
        "eval_iters": 1,
        "tensorboard_dir": folder / "boards",
        "peak_theoretical_tflops": PEAK_TFLOPS,
        **row.settings(),
    }
    metrics = _metrics(row, folder)
    metrics.unlink(missing_ok=True)
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    environment = {**os.environ, "NEOXLITE_METRICS_FILE": str(metrics)}
    command = [*NEOXLITE, "train", f"{row.size}.yml", "data.yml", *settings]
    began = time.time()
    try:
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        # Bytes, though text was asked for.
        said = b"".join(part[-1500:] for part in (late.stdout, late.stderr) if part).decode(errors="replace")
        raise RuntimeError(f"not done in {limit_s:.0f} s: {said}") from None
    metrics.with_suffix(".log").write_text(run.stdout)
    if run.returncode:
        raise RuntimeError(f"exit {run.returncode}: {run.stdout[-1500:]}\n{run.stderr[-2500:]}")
    entries = [json.loads(line) for line in metrics.read_text().splitlines()]
    found = summary([entry for entry in entries if "iteration_time_ms" in entry])
    return {**found, "start_s": _first_step(entries) - began, "notes": _notes(run.stdout)}


def losses(row: Row, folder: Path) -> list[float | None]:
    """Return the losses that `measure` left in ``folder``, one an interval."""
    entries = [json.loads(line) for line in _metrics(row, folder).read_text().splitlines()]
    return [entry["loss"] for entry in entries if "iteration_time_ms" in entry]


def _metrics(row: Row, folder: Path) -> Path:
    return folder / f"{row.text.replace(':', '_').replace('=', '-')}.jsonl"


def summary(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians of the intervals from iteration 20 on, or of the last half of a short run."""
    late = [entry for entry in entries if entry["iteration"] > 20] or entries[len(entries) // 2 :]

    def median(key: str) -> float:
        return statistics.median(entry[key] for entry in late)

    late_losses = [
        entry["loss"]
        for entry in entries
        if entry["iteration"] > entries[-1]["iteration"] - 50 and entry["loss"] is not None
    ]
    readings = [entry["hardware"] for entry in late if entry.get("hardware")]  # one a second: not in every interval
    return {
        "tokens_per_s": median("tokens_per_s"),
        "ms": median("iteration_time_ms"),
        "data_wait": median("data_wait_ms") / median("iteration_time_ms"),
        "loss": entries[-1]["loss"],
        "loss_last_50": statistics.mean(late_losses) if late_losses else None,
        "peak_gib": late[-1]["memory_mb"].get("max allocated", 0) / 1024,
        **{key: statistics.fmean(reading[key] for reading in readings) for key in HARDWARE if readings},
    }


def _first_step(entries: list[dict[str, Any]]) -> float:
    """Return when the first interval's last iteration ended, less the steady time of those behind the first."""
    steps = [entry for entry in entries if "iteration_time_ms" in entry]
    ended = datetime.datetime.fromisoformat(steps[0]["time"]).timestamp()
    steady = statistics.median(entry["iteration_time_ms"] for entry in steps[1:] or steps)
    return ended - (steps[0]["iteration"] - 1) * steady / 1000


def _notes(output: str) -> list[str]:
    return [line.strip(" >") for line in output.splitlines() if line.startswith(" > without") or "slower" in line]
