"""A folder of a model as transformers saves it: read, and written in shards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from neoxlite.common.paths import is_dir, is_file
from neoxlite.convert.pickles import PickledFile
from neoxlite.convert.staging import write_file
from neoxlite.convert.tensor_file import TensorFile, write_tensors
from neoxlite.convert.weight import Weight
from neoxlite.errors import CheckpointError

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# Buffers of older releases: computed, not learned.
_COMPUTED = re.compile(r".*\.(rotary_emb\.inv_freq|attention\.bias|attention\.masked_bias)")


def is_hf_folder(folder: Path) -> bool:
    """Tell whether ``folder`` looks like a model of transformers."""
    return is_file(folder / CONFIG)


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object. Raises CheckpointError if the file is missing or holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}", hint="give a complete folder") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}", hint="copy it again") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is damaged: it holds no table", hint="copy it again")
    return content


@dataclass(frozen=True)
class HfFolder:
    """The configuration and the weights of a folder; tensors are read when asked for."""

    folder: Path
    config: dict[str, Any]
    weights: dict[str, Weight]
    files: list[Path]

    @classmethod
    def open(cls, folder: Path) -> HfFolder:
        """Look at the files of ``folder``.

        Raises:
            CheckpointError: it is no such folder, or some files are missing or damaged.
        """
        if not is_hf_folder(folder):
            raise CheckpointError(
                f"{folder} is not a Hugging Face model: it has no {CONFIG}"
                if is_dir(folder)
                else f"{folder}: there is no such folder",
                hint=f"give a folder with {CONFIG} and {SINGLE}; `neoxlite convert inspect` says what a folder is",
                exit_code=2,
            )
        config = read_json(folder / CONFIG)
        names = _weight_files(folder)
        weights: dict[str, Weight] = {}
        for name in names:
            weights |= _weights_of(folder / name)
        if (folder / INDEX).is_file():
            missing = sorted(set(read_json(folder / INDEX)["weight_map"]) - set(weights))
            if missing:
                raise CheckpointError(f"{folder}: {missing[0]} of {INDEX} is in no file", hint="copy the folder again")
        weights = {name: weight for name, weight in weights.items() if not _COMPUTED.fullmatch(name)}
        return cls(folder, config, weights, [folder / name for name in names])


def _weight_files(folder: Path) -> list[str]:
    for single, index in ((SINGLE, INDEX), _PICKLED):
        if (folder / single).is_file():
            return [single]
        if (folder / index).is_file():
            table = read_json(folder / index).get("weight_map")
            names = set(table.values()) if isinstance(table, dict) else set()
            if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
                raise CheckpointError(f"{folder / index} is damaged: its weight_map is none", hint="copy it again")
            return sorted(names)
    raise CheckpointError(f"{folder} has no {SINGLE} and no {INDEX}", hint="give a complete folder", exit_code=2)


def _weights_of(path: Path) -> dict[str, Weight]:
    if path.suffix == ".safetensors":
        return TensorFile(path).weights()
    file = PickledFile(path)
    content = file.content()
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is damaged: it holds no table of tensors", hint="copy it again")
    names = [name for name, value in content.items() if isinstance(value, torch.Tensor) and value.dim()]
    return {name: file.weight(name) for name in names}


def write_weights(folder: Path, weights: Mapping[str, Weight], shard_bytes: int) -> None:
    """Write ``weights`` to one file, or to several of at most ``shard_bytes`` with an index. Raises OSError."""
    shards: list[dict[str, Weight]] = [{}]
    size = 0
    for name, weight in weights.items():
        if shards[-1] and size + weight.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = weight
        size += weight.nbytes
    metadata = {"format": "pt"}  # transformers asks for it
    if len(shards) == 1:
        write_tensors(folder / SINGLE, shards[0], metadata)
        return
    table = {}
    for number, shard in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_tensors(folder / name, shard, metadata)
        table.update(dict.fromkeys(shard, name))
    total = sum(weight.nbytes for weight in weights.values())
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": table})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object as transformers does, to the disk. Raises OSError."""
    write_file(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
