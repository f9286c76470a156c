"""Speed of the data path: index maps, tokenising, reading samples. Prints one line a measurement.

Run: python benchmarks/data.py [--documents 10000000] [--mib 20] [--workers 1 2]

Peers of the same run: for tokenising, the ``tokenizers`` library alone on texts that already are in memory (the limit
of any program around it); for reading, a plain copy of the same tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from neoxlite.data.blending import blend_order
from neoxlite.data.gpt_dataset import GPTDataset
from neoxlite.data.index_map import build_index_map
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.loader import MicroBatches
from neoxlite.data.python_source import collect_python
from neoxlite.data.train_bpe import train_bpe
from neoxlite.data.writer import DatasetWriter

# The library alone, in a process of its own so that it gets the number of threads asked for.
_LIBRARY_ALONE = """
import json, sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
texts = [json.loads(line)["text"] for line in open(sys.argv[2], encoding="utf-8")]
start = time.perf_counter()
for first in range(0, len(texts), 64):
    tokenizer.encode_batch_fast(texts[first : first + 64])
print(time.perf_counter() - start)
"""
_OURS = """
import sys
from pathlib import Path
from neoxlite.data.preprocess import tokenize_files
from neoxlite.tokenizers import build_tokenizer
tokenizer = build_tokenizer("HFTokenizer", sys.argv[1])
print(tokenize_files([Path(sys.argv[2])], sys.argv[3], tokenizer, append_eod=True).seconds)
"""


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--mib", type=float, default=10, help="text to tokenise")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, {os.cpu_count()} CPUs")
    with tempfile.TemporaryDirectory() as folder:
        tokenising(Path(folder), options.mib, options.workers, options.repeats)
        reading(Path(folder), options.repeats)
    index_maps(options.documents)
    blending()
    print(f"peak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def tokenising(folder: Path, mib: float, workers: list[int], repeats: int) -> None:
    """Compare `neoxlite data tokenize` with the library alone."""
    collect_python(folder, max_mib=mib)
    train_bpe([folder / "train.jsonl"], folder / "tokenizer.json", 4096)
    size = sum(len(json.loads(line)["text"].encode()) for line in (folder / "train.jsonl").open(encoding="utf-8"))
    files = [str(folder / "tokenizer.json"), str(folder / "train.jsonl")]
    for threads in workers:
        environment = os.environ | {
            "RAYON_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        }

        times: dict[str, list[float]] = {_OURS: [], _LIBRARY_ALONE: []}
        for _ in range(repeats):  # in turn, so that a busy machine disturbs both alike
            for code, measured in times.items():
                argv = [sys.executable, "-c", code, *files, str(folder / "bench")]
                measured.append(float(subprocess.check_output(argv, env=environment)))
        ours, alone = statistics.median(times[_OURS]), statistics.median(times[_LIBRARY_ALONE])
        print(
            f"tokenise {size / 1e6:.1f} MB, {threads} threads: {size / ours / 1e6:.2f} MB/s; "
            f"the library alone {size / alone / 1e6:.2f} MB/s ({ours / alone:.2f} times its time)"
        )


def reading(folder: Path, repeats: int) -> None:
    """Read micro-batches of 4 x 2049 tokens; the peer copies as many tokens from the same mapped file."""
    random = np.random.RandomState(0)
    with DatasetWriter(folder / "tokens", "uint16") as writer:
        for size in random.randint(100, 2000, 20_000):
            writer.add_document(random.randint(0, 50_000, size))
    dataset = IndexedDataset(folder / "tokens")
    index_map = build_index_map(dataset.sizes, range(len(dataset)), num_samples=9_000, seq_length=2048, seed=1)
    batches = MicroBatches(GPTDataset(dataset, index_map, 2048), 4)
    steps, count = 2_000, 4 * 2049

    def copy() -> None:
        for step in range(steps):
            dataset.tokens(step * count, (step + 1) * count).astype(np.int64)

    ours, plain = _median(lambda: [next(batches) for _ in range(steps)], repeats), _median(copy, repeats)
    rate = steps * count / ours / 1e6
    print(f"read micro-batches: {rate:.0f} M tokens/s; a plain copy {steps * count / plain / 1e6:.0f} M tokens/s")


def index_maps(documents: int) -> None:
    """Build the index map of one epoch of many documents."""
    sizes = np.random.RandomState(1).randint(1, 1000, documents).astype(np.int32)
    samples = (int(sizes.sum(dtype=np.int64)) - 1) // 2048
    start = time.perf_counter()
    build_index_map(sizes, range(documents), num_samples=samples, seq_length=2048, seed=1234)
    print(f"index map of {documents:,} documents, {samples:,} samples: {time.perf_counter() - start:.2f} s")


def blending() -> None:
    """Order a blend of four datasets."""
    start = time.perf_counter()
    blend_order([0.1, 0.2, 0.3, 0.4], 1_000_000)
    print(f"blend of 4 datasets, 1,000,000 samples: {time.perf_counter() - start:.2f} s")


def _median(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
