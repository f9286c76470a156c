"""Text that every machine with Python has, for benchmarks that train small models."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

LENGTH, BATCH, VOCABULARY = 256, 2, 2048


def text(mib: float = 6) -> Tensor:
    """Return the tokens of Python's standard library, in the order of paths, by a BPE of it."""
    from tokenizers import ByteLevelBPETokenizer

    files, size = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts and size < mib * 2**20:
            files.append(path.read_text(encoding="utf-8", errors="replace"))
            size += len(files[-1])
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(files, vocab_size=VOCABULARY, show_progress=False)
    return torch.cat([torch.tensor(tokenizer.encode(file).ids, dtype=torch.long) for file in files])


def batches(tokens: Tensor, seed: int, count: int = BATCH, length: int = LENGTH) -> Iterator[Tensor]:
    """Yield (count, length + 1) stretches at places that the seed draws."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        places = torch.randint(0, len(tokens) - length - 1, (count,), generator=generator)
        yield torch.stack([tokens[place : place + length + 1] for place in places.tolist()])
