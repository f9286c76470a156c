"""What a folder of a model is: ours, GPT-NeoX's or Hugging Face's, and whether its files are whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from neoxlite.checkpoint.folder import find, saved_iterations, step_name
from neoxlite.checkpoint.manifest import MANIFEST, Manifest
from neoxlite.checkpoint.optimizer_state import MASTER, MOMENTS
from neoxlite.checkpoint.tokenizer_files import FOLDER as TOKENIZER
from neoxlite.common.paths import is_dir, is_file
from neoxlite.config.reader import YAML_ERRORS
from neoxlite.convert.hf_folder import HfFolder, is_hf_folder, read_json
from neoxlite.convert.pickles import PickledFile
from neoxlite.convert.tensor_file import TensorFile, dtype_name
from neoxlite.convert.tokenizer_export import COMPANIONS, FILES
from neoxlite.convert.upstream import Upstream, find_upstream, is_upstream
from neoxlite.convert.weight import Weight
from neoxlite.errors import CheckpointError

OWN, UPSTREAM, HF = "neoxlite", "GPT-NeoX", "Hugging Face"


@dataclass(frozen=True)
class Report:
    """One model on the disk."""

    format: str
    folder: str
    iteration: int | None = None
    parameters: int | None = None
    """None: not all could be counted, for files are damaged."""
    dtype: str | None = None
    layout: str | None = None
    optimizer: str | None = None
    tokenizer: str | None = None
    architecture: dict[str, Any] = field(default_factory=dict)
    layers: int | None = None
    files: int = 0
    nbytes: int = 0
    damage: list[str] = field(default_factory=list)
    other_iterations: list[int] = field(default_factory=list)


def inspect(root: Path, iteration: int | None = None) -> Report:
    """Look at all files of the model that ``root`` means; what is damaged is in `Report.damage`.

    Raises:
        CheckpointError: there is no model.
    """
    if not is_dir(root):
        raise CheckpointError(f"{root} is not a folder", hint="give the folder of a model", exit_code=2)
    if iteration is None and is_hf_folder(root):
        return _hf(root)
    if iteration is None and is_file(root / MANIFEST):
        return _own(root)
    if is_upstream(root) or any(is_upstream(root / step_name(one)) for one in saved_iterations(root)):
        return _upstream(find_upstream(root, iteration), root)
    folder = find(root, iteration)
    if folder is None:
        raise CheckpointError(
            f"{root} holds no model: no {MANIFEST}, no latest, no config.json",
            hint="give the folder of save, a global_step... in it, or a Hugging Face folder",
            exit_code=2,
        )
    return _own(folder, saved_iterations(root))


def _sizes(folder: Path) -> dict[str, Any]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {"files": len(files), "nbytes": sum(path.stat().st_size for path in files)}


def _dtypes(counts: Mapping[torch.dtype, int]) -> str | None:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(dtype_name(dtype) for dtype, _ in ordered) or None


def _own(folder: Path, iterations: list[int] | None = None) -> Report:
    others = [one for one in iterations or [] if step_name(one) != folder.name]
    try:
        manifest = Manifest.read(folder)
    except CheckpointError as error:
        return Report(OWN, str(folder), damage=[error.message], other_iterations=others, **_sizes(folder))
    damage, training = manifest.damage(folder), manifest.training
    counts = Counter[torch.dtype]()
    tensors = sorted(name for name in manifest.files if name.endswith(".safetensors"))
    layers = [name for name in tensors if name.startswith("layer_")]
    ranks = {name.partition("-")[2].removesuffix(".safetensors") for name in tensors if name not in layers}
    kinds: set[str] = set()
    all_counted = True
    for name in tensors:
        weights = _weights(folder, name, damage)
        if weights is None:
            all_counted = all_counted and name not in layers
        elif name in layers:
            for weight in weights.values():
                counts[weight.dtype] += weight.numel
        else:
            kinds |= {key.split("/")[0] for key in weights}
    optimizer = None
    if training["with_optimizer"]:
        words = [*(kind for kind in MOMENTS if kind in kinds), *([MASTER] if MASTER in kinds else [])]
        optimizer = f"Adam: {', '.join(words) or 'not readable'}; pieces of {len(ranks)} rank{'s' * (len(ranks) != 1)}"
    return Report(
        OWN,
        str(folder),
        iteration=training["iteration"],
        parameters=sum(counts.values()) or None if all_counted else None,
        dtype=_dtypes(counts),
        layout=f"any (saved on {training['world_size']} rank{'s' * (training['world_size'] != 1)})",
        optimizer=optimizer or "none",
        tokenizer=_tokenizer_of_config(folder / "config.yml", folder / TOKENIZER),
        architecture=training.get("architecture", {}),
        layers=len(layers),
        damage=damage,
        other_iterations=others,
        **_sizes(folder),
    )


def _weights(folder: Path, name: str, damage: list[str]) -> dict[str, Weight] | None:
    """Return the weights of a file; None, with the reason in ``damage``, if it is not whole."""
    if any(text.startswith(f"{name} ") for text in damage):
        return None
    try:
        return TensorFile(folder / name).weights()
    except CheckpointError as error:
        damage.append(error.message)
        return None


def _tokenizer_of_config(path: Path, folder: Path) -> str | None:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, *YAML_ERRORS):
        return None
    kind = config.get("tokenizer_type", "GPT2BPETokenizer") if isinstance(config, dict) else None
    files = sorted(one.name for one in folder.iterdir() if one.is_file()) if folder.is_dir() else []
    return f"{kind} ({', '.join(files)})" if files else str(kind)


def _upstream(folder: Path, root: Path) -> Report:
    others = [one for one in saved_iterations(root) if step_name(one) != folder.name]
    try:
        upstream = Upstream.open(folder)
        state, args = upstream.state, upstream.args
    except CheckpointError as error:
        return Report(UPSTREAM, str(folder), damage=[error.message], other_iterations=others, **_sizes(folder))
    files = (*upstream.layers.values(), *upstream.slices.values(), *upstream.zero.values())
    damage = [text for file in files if (text := _damage(file))]
    counts: Counter[torch.dtype] = Counter()
    if not damage:
        counts = _count_upstream(upstream)
    return Report(
        UPSTREAM,
        str(folder),
        iteration=state.get("iteration", state.get("global_steps")),
        parameters=sum(counts.values()) or None,
        dtype=_dtypes(counts),
        layout=f"dp {upstream.data_size} x pp {upstream.pipeline_size} x tp {upstream.tensor_size}",
        optimizer=f"ZeRO shards of {upstream.data_size} replicas" if upstream.zero else "in the mp_rank files",
        tokenizer=args.get("tokenizer_type"),
        architecture={key: value for key, value in args.items() if key != "tokenizer_type"},
        layers=len(upstream.layer_numbers()) if not damage else None,
        damage=damage,
        other_iterations=others,
        **_sizes(folder),
    )


def _damage(file: PickledFile) -> str | None:
    try:
        file.content()
    except CheckpointError as error:
        return error.message
    return None


def _count_upstream(upstream: Upstream) -> Counter[torch.dtype]:
    """Count parameters; what is not a matrix sliced over the ranks is on every one of them."""
    counts = Counter[torch.dtype]()
    replicated = ("layernorm.", "norm.", "position_embeddings", "attention.dense.bias", "4h_to_h.bias", "linear2.bias")
    for layer in upstream.layer_numbers():
        for name in upstream.local_names(layer):
            for rank in range(upstream.tensor_size):
                if rank and any(part in name for part in replicated):
                    continue
                file: PickledFile = upstream.layers[layer, rank] if upstream.layers else upstream.slices[rank]
                keys = (name,) if upstream.layers else ("module", f"sequential.{layer}.{name}")
                weight = file.weight(*keys)
                counts[weight.dtype] += weight.numel
    return counts


def _hf(folder: Path) -> Report:
    damage: list[str] = []
    counts = Counter[torch.dtype]()
    config: dict[str, Any] = {}
    try:
        config = read_json(folder / "config.json")
        for weight in HfFolder.open(folder).weights.values():
            counts[weight.dtype] += weight.numel
    except CheckpointError as error:
        damage.append(error.message)
    shown = ("model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
             "intermediate_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings")  # fmt: skip
    tokenizer = [name for name in (*FILES, *COMPANIONS) if (folder / name).is_file()]
    return Report(
        HF,
        str(folder),
        parameters=sum(counts.values()) or None,
        dtype=_dtypes(counts),
        layout="any",
        optimizer="none",
        tokenizer=", ".join(tokenizer) or "none",
        architecture={key: config[key] for key in shown if key in config},
        layers=config.get("num_hidden_layers"),
        damage=damage,
        **_sizes(folder),
    )
