"""A model and its tokenizer from a checkpoint alone, for evaluation and generation."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from neoxlite.checkpoint.architecture import compare_architecture
from neoxlite.checkpoint.folder import find
from neoxlite.checkpoint.load import load_weights, verify
from neoxlite.checkpoint.manifest import MANIFEST, Manifest
from neoxlite.checkpoint.tokenizer_files import saved_tokenizer
from neoxlite.common.paths import is_dir, is_file
from neoxlite.config import load_config
from neoxlite.errors import CheckpointError
from neoxlite.model.gpt import GPTModel
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.topology import Topology
from neoxlite.tokenizers import Tokenizer, build_tokenizer

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig

_OTHER = "omit the configuration to take the checkpoint's own, or set the checkpoint's values"


@dataclass(frozen=True)
class Restored:
    """What `restore` returns; the model is in evaluation mode on the device."""

    folder: Path
    iteration: int
    cfg: NeoxConfig
    tokenizer: Tokenizer
    model: GPTModel


def folder_of(load: Path, iteration: int | None = None) -> Path:
    """Return the checkpoint folder that ``load`` means: itself, or the one in it of ``iteration`` or the latest.

    Raises:
        CheckpointError: there is none.
    """
    if iteration is None and is_file(load / MANIFEST):
        return load
    folder = find(load, iteration) if is_dir(load) else None
    if folder is None:
        what = "has no checkpoint" if is_dir(load) else "is not a folder"
        raise CheckpointError(f"{load} {what}", hint="give the folder of save, or a global_step... in it", exit_code=2)
    return folder


def saved_config(folder: Path, manifest: Manifest) -> NeoxConfig:
    """Return the configuration that a checkpoint was trained with, with the tokenizer's files it holds itself."""
    path = folder / "config.yml"
    world_size = int(manifest.training["world_size"])
    cfg = load_config(path, world_size=world_size)
    overrides = saved_tokenizer(folder, cfg)
    return load_config(path, overrides=overrides, world_size=world_size) if overrides else cfg


def restore(
    folder: Path, device: torch.device, *, cfg: NeoxConfig | None = None, topology: Topology | None = None
) -> Restored:
    """Build the model of a checkpoint on ``device`` and load its weights.

    Args:
        cfg: by default the checkpoint's own.
        topology: the ranks that call this together; each gets the whole model.

    Raises:
        CheckpointError: damaged, or not this configuration's model.
    """
    topology = topology if topology is not None else Topology()
    manifest = Manifest.read(folder)
    verify(folder, manifest, topology)
    own = cfg is None
    cfg = saved_config(folder, manifest) if cfg is None else cfg
    tokenizer = build_tokenizer(cfg.tokenizer_type, cfg.vocab_file, cfg.merge_file)
    spec = ModelSpec.from_config(cfg, cfg.padded_vocab_size(tokenizer.vocab_size))
    line = compare_architecture(folder, manifest.training, spec, hint=_OTHER)
    if line is not None and not own and topology.rank == 0:
        print(line, file=sys.stderr, flush=True)
    # On a CPU half precision saves nothing that matters here and is slower.
    low = {"bfloat16": torch.bfloat16, "fp16": torch.float16} if device.type == "cuda" else {}
    with torch.device(device):
        model = GPTModel(spec).to(low.get(cfg.precision, torch.float32))
    load_weights(folder, model)
    return Restored(folder, int(manifest.training["iteration"]), cfg, tokenizer, model.eval())
