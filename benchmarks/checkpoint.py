"""What a save costs training: at once and beside it (checkpoint.async_save), in the same run of this script.

    python benchmarks/checkpoint.py                       # a model of 50 million parameters, fp32: 600 MB a checkpoint
    python benchmarks/checkpoint.py 1-3B --precision bfloat16

Real runs of `neoxlite train` on one rank, on a GPU if there is one. A row is a way to save: how long training stands
still for a save, a step without a save, and the steps during which the disk is written; all medians. The last line
compares what a save costs training in both ways. Each size of the model's state is written as many times as `--saves`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

BETWEEN = 8  # steps from one save to the next
SMALL = {
    "num_layers": 7,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "seq_length": 32,
    "max_position_embeddings": 32,
    "pos_emb": "rotary",
    "no_weight_tying": True,
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 0.0001}},
}


@dataclass
class Row:
    """Milliseconds, medians over a run."""

    blocked: float
    step: float
    step_while_writing: float | None
    steps_while_writing: int
    write: float


def train(folder: Path, model: list[str], keys: dict[str, Any], name: str, asynchronous: bool) -> Row:
    """Run a training and return what its metrics say."""
    metrics = folder / f"{name}.jsonl"
    settings = {**keys, "save": str(folder / name), "checkpoint": {"async_save": asynchronous}}
    (folder / f"{name}.yml").write_text(yaml.safe_dump(settings))
    words = [sys.executable, "-m", "neoxlite", "train", *model, str(folder / f"{name}.yml")]
    subprocess.run(
        words, cwd=folder, env={**os.environ, "NEOXLITE_METRICS_FILE": str(metrics)}, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    entries = [json.loads(line) for line in metrics.read_text().splitlines()]
    return summary(entries, int(keys["train_iters"]))


def summary(entries: list[dict[str, Any]], last: int) -> Row:
    """Tell steps during which a checkpoint was being written from the others; the first two warm up."""
    saves = [entry for entry in entries if entry.get("event") == "checkpoint" and entry["iteration"] < last]
    spans = []
    for save in saves:
        # Copied first, which training waits for; then written.
        seconds = save["seconds"] - save["blocked_ms"] / 1000
        begin = _clock(next(e for e in entries if "event" not in e and e["iteration"] == save["iteration"]))
        begin += save["blocked_ms"] / 1000
        spans.append((begin, begin + seconds))
    during, alone = [], []
    for entry in entries:
        if "event" in entry or entry["iteration"] <= 2:
            continue
        end = _clock(entry)
        begin = end - entry["iteration_time_ms"] / 1000
        if any(begin >= first and end <= until for first, until in spans):
            during.append(entry["iteration_time_ms"])
        elif not any(begin < until and end > first for first, until in spans):
            alone.append(entry["iteration_time_ms"])
    return Row(
        statistics.median(save["blocked_ms"] for save in saves),
        statistics.median(alone),
        statistics.median(during) if during else None,
        len(during),
        statistics.median(save["seconds"] * 1000 for save in saves),
    )


def _clock(entry: dict[str, Any]) -> float:
    return datetime.datetime.fromisoformat(entry["time"]).timestamp()


def prepare(folder: Path) -> None:
    """Write tokens of this machine's Python files, one a byte."""
    lines = [json.dumps({"text": path.read_text(encoding="utf-8")}) for path in Path(__file__).parent.glob("*.py")]
    (folder / "text.jsonl").write_text("\n".join(lines * 20))
    words = ["data", "tokenize", "--input", "text.jsonl", "--output-prefix", "text"]
    subprocess.run(
        [sys.executable, "-m", "neoxlite", *words, "--tokenizer-type", "CharLevelTokenizer"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


def main() -> None:
    """Print one row for each way to save, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="*", help="configuration files of a model; by default 50 million parameters")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--folder", help="where checkpoints are written, by default a temporary folder")
    options = parser.parse_args()
    steps = BETWEEN * (options.saves + 1)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        prepare(folder)
        keys: dict[str, Any] = {
            **({} if options.model else SMALL),
            "data_path": "text_text_document",
            "tokenizer_type": "CharLevelTokenizer",
            "precision": options.precision,
            "zero_optimization": {"stage": 1},
            "train_iters": steps,
            "lr_decay_iters": steps,
            "log_interval": 1,
            "eval_iters": 0,
            "checkpoint_factor": BETWEEN,
            "keep_last_n_checkpoints": 1,
        }
        rows = {
            "at once": train(folder, options.model, keys, "at_once", asynchronous=False),
            "beside training": train(folder, options.model, keys, "beside", asynchronous=True),
        }
        written = sum(path.stat().st_size for path in (folder / "beside").glob("global_step*/*.safetensors"))
    print(f"{written / 1e6:,.0f} MB a checkpoint; milliseconds, medians over {options.saves} saves")
    print(f"{'save':<16} {'blocks':>9} {'whole':>9} {'step':>9} {'step while written':>19} {'growth':>8}")
    for name, row in rows.items():
        during = "-" if row.step_while_writing is None else f"{row.step_while_writing:.1f} ({row.steps_while_writing})"
        growth = "-" if row.step_while_writing is None else f"{row.step_while_writing / row.step - 1:.1%}"
        print(f"{name:<16} {row.blocked:>9.1f} {row.write:>9.1f} {row.step:>9.1f} {during:>19} {growth:>8}")
    ratio = rows["beside training"].blocked / rows["at once"].blocked
    print(f"a save beside training stops it for {ratio:.1%} of the time of a save at once")


if __name__ == "__main__":
    main()
