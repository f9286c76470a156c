"""What a save costs training: at once and beside it (checkpoint.async_save), in the same run of this script.

    python benchmarks/checkpoint.py                       # a model of 50 million parameters, fp32: 600 MB a checkpoint
    python benchmarks/checkpoint.py 1-3B --precision bfloat16

Real runs of `neoxlite train` on one rank, on a GPU if there is one. A row is a way to save: a step without a save, how
long training stands still for a save, how much longer the steps take together while the disk is written, the sum of the
two, and how long a save takes from begin to end; milliseconds, medians. The last line compares both ways.
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
    whole: float
    step: float
    beside: float
    """What the steps took longer while a checkpoint was written, together."""

    @property
    def cost(self) -> float:
        """What a save costs training."""
        return self.blocked + self.beside


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
    """Tell steps that overlap with the writing of a checkpoint from the others; the first two warm up."""
    saves = [entry for entry in entries if entry.get("event") == "checkpoint" and entry["iteration"] < last]
    steps = [entry for entry in entries if "event" not in entry and entry["iteration"] > 2]
    ends = {entry["iteration"]: _clock(entry) for entry in steps}
    spans = {}
    for save in saves:
        if not save["background"]:
            continue
        begin = ends[save["iteration"]]  # copied first, which training waits for; then written
        spans[save["iteration"]] = (begin + save["blocked_ms"] / 1000, begin + save["seconds"])
    longer: dict[int, list[float]] = {iteration: [] for iteration in spans}
    alone = []
    for entry in steps:
        end, milliseconds = ends[entry["iteration"]], entry["iteration_time_ms"]
        meets = [at for at, (first, until) in spans.items() if end - milliseconds / 1000 < until and end > first]
        for at in meets:
            longer[at].append(milliseconds)
        if not meets:
            alone.append(milliseconds)
    step = statistics.median(alone)
    return Row(
        statistics.median(save["blocked_ms"] for save in saves),
        statistics.median(save["seconds"] * 1000 for save in saves),
        step,
        statistics.median([sum(times) - step * len(times) for times in longer.values()] or [0.0]),
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
    print(f"{'save':<16} {'step':>9} {'blocks':>9} {'slows steps by':>15} {'costs training':>15} {'written in':>11}")
    for name, row in rows.items():
        print(
            f"{name:<16} {row.step:>9.1f} {row.blocked:>9.1f} {row.beside:>15.1f} {row.cost:>15.1f} {row.whole:>11.1f}"
        )
    at_once, beside = rows.values()
    print(f"a save beside training costs {beside.cost / at_once.cost:.1%} of a save at once,", end=" ")
    print(f"and {beside.cost / (BETWEEN * beside.step):.1%} of the {BETWEEN} steps from one save to the next")


if __name__ == "__main__":
    main()
