"""Saves through the path of every save, of files that hold the iteration's number in place of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neoxlite.checkpoint.manifest import Manifest

TRAINING: dict[str, Any] = {
    "consumed_samples": 0,
    "skipped_steps": 0,
    "optimizer_step": 0,
    "world_size": 1,
    "train_batch_size": 1,
    "padded_vocab_size": 1,
    "with_optimizer": True,
    "schedule": {},
}
NAMES = (
    "layer_00.safetensors",
    "layer_02.safetensors",
    "optimizer_02-0000.safetensors",
    "optimizer_02-0001.safetensors",
)


def save_numbers(root: Path, iteration: int, *, numel: int = 1000, keep_last: int | None = None) -> Path:
    """Save `NAMES`, all of one size, and two small files; return the checkpoint's folder."""
    import torch

    from neoxlite.checkpoint.save import Contents, Together, write
    from neoxlite.checkpoint.share import TensorFile
    from neoxlite.parallel.topology import Topology

    files = [
        TensorFile(name, {"weight": torch.full((numel,), iteration + place / 10)}) for place, name in enumerate(NAMES)
    ]
    contents = Contents({**TRAINING, "iteration": iteration}, {"config.yml": b"x", "configs/a.yml": b"y"})
    return write(root, Together(Topology()), files, contents, keep_last=keep_last)


def check(folder: Path) -> None:
    """Do what a load does before it reads tensors."""
    from neoxlite.checkpoint.load import verify
    from neoxlite.parallel.topology import Topology

    verify(folder, Manifest.read(folder), Topology())
