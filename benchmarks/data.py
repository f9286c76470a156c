"""Speed of the data path: tokenising, index maps, reading samples. Prints one line a measurement.

Run: python benchmarks/data.py [--only tokenise|index|read|blend] [--mib 30] [--workers 2] [--text FILE.jsonl]
    [--gpt-neox DIR]

Every figure stands beside peers of the same run, which take turns with it so that a busy machine disturbs all alike:
for tokenising the libraries alone on texts that are in memory already (the limit of any program around them), for
reading a plain copy of the same tokens. With --gpt-neox, a checkout of GPT-NeoX with megatron/data/helpers compiled,
also its preprocess_data.py and its index maps. Times are medians:
wall clock, and in brackets the processor time of all threads and child processes, which other work disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from neoxlite.data.blending import blend_order, normalize_weights
from neoxlite.data.gpt2_files import write_gpt2_files
from neoxlite.data.gpt_dataset import GPTDataset
from neoxlite.data.index_map import build_index_map
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.loader import MicroBatches, PrefetchedBatches
from neoxlite.data.python_source import collect_python
from neoxlite.data.writer import DatasetWriter

_PARTS = ("tokenise", "index", "read", "blend")
_INDEXED = ((1_000_000, 1_000_000_000), (5_000_000, 500_000_000))  # documents, tokens
_SLOW_PEER_BYTES = 3_000_000  # of text for the libraries that would take minutes for all

# Programs that time their own work, in processes of their own so that each has the threads asked for and no caches.
_CLOCK = """
import json, os, sys, time
def begin():
    global wall, busy
    wall, busy = time.perf_counter(), sum(os.times()[:4])
def end(share=1.0):
    print()
    print((time.perf_counter() - wall) / share, (sum(os.times()[:4]) - busy) / share)
"""
_TEXTS = """
texts = [json.loads(line)["text"] for line in open(sys.argv[1], encoding="utf-8")]
def batches(texts):
    return [texts[first : first + 100] for first in range(0, len(texts), 100)]
"""
_OURS = """
from pathlib import Path
from neoxlite.data.preprocess import Options, tokenize_files
from neoxlite.tokenizers import build_tokenizer
tokenizer = build_tokenizer("GPT2BPETokenizer")
begin()
tokenize_files([Path(sys.argv[1])], sys.argv[2] + "/ours", tokenizer, Options(append_eod=True))
end()
"""
_GIGATOKEN = """
import gigatoken
from neoxlite.tokenizers import build_tokenizer
description = build_tokenizer("GPT2BPETokenizer").backend.to_str()
begin()
tokenizer = gigatoken.Tokenizer.from_json(description)
for batch in batches(texts):
    tokenizer.encode_batch(batch, parallel=True)
end()
"""
_SHARE = """
whole = sum(map(len, texts))
part, texts = 0, iter(texts)
some = []
while part < min(whole, int(sys.argv[3])):
    some.append(next(texts))
    part += len(some[-1])
"""
_TOKENIZERS = """
from neoxlite.tokenizers import build_tokenizer
tokenizer = build_tokenizer("GPT2BPETokenizer").backend
begin()
for batch in batches(some):
    tokenizer.encode_batch_fast(batch)
end(part / whole)
"""
_UPSTREAM = """
sys.path.insert(0, sys.argv[-1])
from tools.datasets import preprocess_data
folder = sys.argv[2]
begin()
preprocess_data.main([
    "--input", sys.argv[1], "--output-prefix", folder + "/upstream", "--tokenizer-type", "GPT2BPETokenizer",
    "--vocab-file", folder + "/gpt2-vocab.json", "--merge-file", folder + "/gpt2-merges.txt", "--append-eod",
    "--workers", os.environ["RAYON_NUM_THREADS"],
])
end()
"""
_INDEX_SIZES = """
import numpy as np
documents, tokens = int(sys.argv[1]), int(sys.argv[2])
sizes = np.random.RandomState(1).randint(1, 2 * tokens // documents, documents).astype(np.int32)
samples = (int(sizes.sum(dtype=np.int64)) - 1) // 2048
"""
_OUR_INDEX = """
from types import SimpleNamespace
from neoxlite.data.index_cache import IndexRequest, build_index
request = IndexRequest(SimpleNamespace(sizes=sizes, prefix=sys.argv[3] + "/x"), range(documents), "t", samples, 2048, 1)
begin()
build_index(request)
end()
"""
_UPSTREAM_INDEX = """
sys.path.insert(0, sys.argv[-1])
import torch
from megatron.data import gpt2_dataset, helpers
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[3] + "/group", rank=0, world_size=1)
torch.cuda.LongTensor = torch.LongTensor
gpt2_dataset.mpu.get_io_parallel_group = lambda: None
numbers = np.arange(documents, dtype=np.int32)
begin()
gpt2_dataset._build_index_mappings("t", sys.argv[3] + "/x", numbers, sizes, None, samples, None, 2048, 1, "packed")
end()
"""


@dataclass(frozen=True)
class Upstream:
    """A checkout of GPT-NeoX and the interpreter that runs it."""

    folder: Path
    python: str


@dataclass
class Measured:
    """Seconds of each repetition."""

    wall_s: list[float]
    busy_s: list[float]

    def __str__(self) -> str:
        return f"{statistics.median(self.wall_s):.3f} s ({statistics.median(self.busy_s):.3f} s)"

    def times(self, other: Measured) -> str:
        """Say how much faster than another this is."""
        wall = statistics.median(other.wall_s) / statistics.median(self.wall_s)
        return f"{wall:.2f} ({statistics.median(other.busy_s) / statistics.median(self.busy_s):.2f})"


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=_PARTS, help="a part; may be repeated; default: all")
    parser.add_argument("--text", type=Path, help="JSON lines to tokenise; default: Python files of this machine")
    parser.add_argument("--mib", type=float, default=30, help="text to tokenise")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gpt-neox", type=Path, help="folder of GPT-NeoX")
    parser.add_argument("--gpt-neox-python", default=sys.executable, help="interpreter that has its requirements")
    options = parser.parse_args()
    parts = options.only or _PARTS
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, {os.cpu_count()} CPUs, wall (processor) seconds")
    neox = Upstream(options.gpt_neox, options.gpt_neox_python) if options.gpt_neox else None
    with tempfile.TemporaryDirectory() as folder:
        if "tokenise" in parts:
            text = options.text or _python_text(Path(folder), options.mib)
            tokenising(Path(folder), text, options.workers, options.repeats, neox)
        for documents, tokens in _INDEXED if "index" in parts else ():
            index_maps(documents, tokens, options.repeats, neox)
        if "read" in parts:
            reading(Path(folder), options.repeats)
    if "blend" in parts:
        blending()


def _python_text(folder: Path, mib: float) -> Path:
    """Collect the Python files of installed packages, of which there is more than of the standard library."""
    collect_python(folder, valid_fraction=0.01, max_mib=mib, stdlib=Path(np.__file__).parents[1])
    return folder / "train.jsonl"


def tokenising(folder: Path, text: Path, workers: int, repeats: int, neox: Upstream | None) -> None:
    """Compare `neoxlite data tokenize` with the libraries alone and with upstream."""
    size = sum(len(json.loads(line)["text"].encode()) for line in text.open(encoding="utf-8"))
    write_gpt2_files(folder)
    programs = {
        "neoxlite": _OURS,
        "gigatoken alone": _TEXTS + _GIGATOKEN,
        "tokenizers alone": _TEXTS + _SHARE + _TOKENIZERS,
    }
    if neox is not None:
        programs["GPT-NeoX"] = _UPSTREAM
    results = _measure(programs, [str(text), str(folder), str(_SLOW_PEER_BYTES)], repeats, workers, neox)
    ours = results["neoxlite"]
    for name, measured in results.items():
        rate = size / statistics.median(measured.wall_s) / 1e6
        print(
            f"tokenise {size / 1e6:.1f} MB, {workers} workers, {name}: {measured}, {rate:.2f} MB/s; "
            f"neoxlite is {ours.times(measured)} times as fast"
        )


def index_maps(documents: int, tokens: int, repeats: int, neox: Upstream | None) -> None:
    """Build the three arrays of an epoch and their files."""
    programs = {"neoxlite": _INDEX_SIZES + _OUR_INDEX}
    if neox is not None:
        programs["GPT-NeoX"] = _INDEX_SIZES + _UPSTREAM_INDEX
    results: dict[str, Measured] = {name: Measured([], []) for name in programs}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            arguments = [str(documents), str(tokens), folder]
            for name, measured in _measure(programs, arguments, 1, 1, neox).items():
                results[name].wall_s += measured.wall_s
                results[name].busy_s += measured.busy_s
    for name, measured in results.items():
        ratio = results["neoxlite"].times(measured)
        print(
            f"index maps of {documents:,} documents, {tokens:,} tokens, {name}: {measured}; neoxlite is {ratio} times"
        )
    sizes = np.random.RandomState(1).randint(1, 2 * tokens // documents, documents).astype(np.int32)
    samples = (int(sizes.sum(dtype=np.int64)) - 1) // 2048
    tracemalloc.start()
    built = build_index_map(sizes, range(documents), num_samples=samples, seq_length=2048, seed=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    result = built.doc_idx.nbytes + built.sample_idx.nbytes + built.shuffle_idx.nbytes
    print(f"  peak memory {peak / 2**20:.0f} MiB, {peak / result:.2f} times the result")


def reading(folder: Path, repeats: int) -> None:
    """Read micro-batches of 4 x 2049 tokens; the peer copies as many tokens from the same mapped file."""
    random = np.random.RandomState(0)
    with DatasetWriter(folder / "tokens", "uint16") as writer:
        for size in random.randint(100, 2000, 20_000):
            writer.add_document(random.randint(0, 50_000, size))
    dataset = IndexedDataset(folder / "tokens")
    index_map = build_index_map(dataset.sizes, range(len(dataset)), num_samples=9_000, seq_length=2048, seed=1)
    samples = GPTDataset(dataset, index_map, 2048)
    steps, count = 2_000, 4 * 2049

    def read() -> None:
        batches = MicroBatches(samples, 4)
        for _ in range(steps):
            next(batches)

    def read_ahead() -> None:
        with PrefetchedBatches(MicroBatches(samples, 4), lambda batch: batch) as batches:
            for _ in range(steps):
                next(batches)

    def copy() -> None:
        for step in range(steps):
            dataset.tokens(step * count, (step + 1) * count).astype(np.int64)

    ways = {"micro-batches": read, "micro-batches of a thread": read_ahead, "a plain copy": copy}
    results = {name: Measured([], []) for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            _add(results[name], way)
    for name, measured in results.items():
        busy, wall = statistics.median(measured.busy_s), statistics.median(measured.wall_s)
        print(f"read {name}: {steps * count / wall / 1e6:.0f} ({steps * count / busy / 1e6:.0f}) M tokens/s")


def blending() -> None:
    """Order blends of a few datasets and of as many as the Pile has."""
    for datasets in (4, 22):
        weights = normalize_weights(range(1, datasets + 1))
        measured = Measured([], [])
        _add(measured, partial(blend_order, weights, 10_000_000))
        print(f"blend of {datasets} datasets, 10,000,000 samples: {measured}")


def _measure(
    programs: dict[str, str], arguments: list[str], repeats: int, workers: int, neox: Upstream | None
) -> dict[str, Measured]:
    parallel = {"RAYON_NUM_THREADS": str(workers), "TOKENIZERS_PARALLELISM": "true" if workers > 1 else "false"}
    results = {name: Measured([], []) for name in programs}
    for _ in range(repeats):
        for name, code in programs.items():
            python, rest = sys.executable, arguments
            if neox is not None and name == "GPT-NeoX":
                python, rest = neox.python, [*arguments, str(neox.folder)]
            told = subprocess.run(
                [python, "-c", _CLOCK + code, *rest],
                env=os.environ | parallel,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=True,
                text=True,
            )
            wall, busy = map(float, told.stdout.splitlines()[-1].split())
            results[name].wall_s.append(wall)
            results[name].busy_s.append(busy)
    return results


def _add(measured: Measured, work: Callable[[], object]) -> None:
    wall, busy = time.perf_counter(), time.process_time()
    work()
    measured.busy_s.append(time.process_time() - busy)
    measured.wall_s.append(time.perf_counter() - wall)


if __name__ == "__main__":
    main()
