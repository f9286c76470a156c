"""The configurations of benchmarks/gpu/multi.py: model sizes, layouts, and the real text that all of them train on."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import neoxlite

CONFIGS = Path(neoxlite.__file__).parent / "configs"
VOCABULARY = 50304
"""Rows of embedding and head: GPT-2's, whatever the tokenizer."""
TINY = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4}


@dataclass(frozen=True)
class Layout:
    """How a model lies on GPUs, and what takes its steps."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    stage: int = 1
    implementation: str = "auto"
    grad_accum_dtype: str = "fp32"

    @property
    def ranks(self) -> int:
        """Processes of it."""
        return self.data * self.tensor * self.pipeline


def config(
    folder: Path,
    name: str,
    size: str,
    layout: Layout,
    *,
    precision: str,
    sequence: int,
    micro_batch: int,
    accumulation: int,
    iterations: int,
    **keys: Any,
) -> str:
    """Write the GPT-NeoX YAML of a run and return its path.

    Args:
        size: a file of neoxlite/configs, or ``tiny``.
        keys: on top.
    """
    values: dict[str, Any] = yaml.safe_load((CONFIGS / f"{'125M' if size == 'tiny' else size}.yml").read_text())
    for key in ("bf16", "data_types", "checkpoint_factor"):
        values.pop(key)
    direct = {} if layout.implementation == "auto" else {"implementation": layout.implementation}
    zero = {**values["zero_optimization"], "stage": layout.stage, **direct}
    if layout.stage == 3 and size == "tiny":
        zero["stage3_param_persistence_threshold"] = 0  # all of its parameters would count as small
    values |= {
        **(TINY if size == "tiny" else {}),
        "precision": precision,
        "zero_optimization": zero,
        "pipe_parallel_size": layout.pipeline,
        "model_parallel_size": layout.tensor,
        "seq_length": sequence,
        "max_position_embeddings": sequence,
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "train_iters": iterations,
        "lr_decay_iters": iterations,
        "checkpoint_activations": False,
        # Of each slice: all layouts have one vocabulary.
        "make_vocab_size_divisible_by": (4096 if size == "tiny" else VOCABULARY) // layout.tensor,
        "eval_interval": iterations + 1,
        "eval_iters": 0,
        "checkpoint_factor": 10 * iterations,
        "train_data_paths": [str(folder / "text/train_text_document")],
        "valid_data_paths": [str(folder / "text/valid_text_document")],
        "test_data_paths": [str(folder / "text/valid_text_document")],
        "tokenizer_type": "HFTokenizer",
        "vocab_file": str(folder / "text/tokenizer.json"),
    }
    if precision == "bfloat16":
        values["data_types"] = {"grad_accum_dtype": layout.grad_accum_dtype}
    path = folder / "configs" / f"{name}.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**values, **keys}, sort_keys=False))
    return str(path)


def prepare_text(folder: Path) -> None:
    """Write the tokens of this machine's Python files (a byte-level BPE of 4,096 tokens), if they are not there."""
    text = folder / "text"
    if (text / "valid_text_document.idx").exists():
        return
    text.mkdir(parents=True, exist_ok=True)
    tokenizer = ["--tokenizer-type", "HFTokenizer", "--vocab-file", "tokenizer.json", "--append-eod"]
    steps = [["collect-python", "--output", "."]]
    steps += [["train-tokenizer", "--input", "train.jsonl", "--vocab-size", "4096", "--output", "tokenizer.json"]]
    for name in ("train", "valid"):
        steps += [["tokenize", "--input", f"{name}.jsonl", "--output-prefix", name, *tokenizer]]
    for step in steps:
        done = subprocess.run([sys.executable, "-m", "neoxlite", "data", *step], cwd=text, capture_output=True)
        if done.returncode:
            raise RuntimeError(f"neoxlite data {step[0]}: {done.stderr.decode(errors='replace')[-2000:]}")
