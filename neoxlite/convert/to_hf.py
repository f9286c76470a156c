"""Export of a checkpoint as a Hugging Face folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from neoxlite.convert.compare import PROMPT, Comparison, compare_with_transformers, prompt_tokens
from neoxlite.convert.families import FAMILIES, family_of
from neoxlite.convert.family import Family
from neoxlite.convert.gpt_neox import TANH
from neoxlite.convert.hf_folder import CONFIG, read_json, write_json, write_weights
from neoxlite.convert.memory import return_freed_blocks
from neoxlite.convert.own import TOKENIZER, OwnCheckpoint
from neoxlite.convert.staging import new_folder, refuse_existing, require_room
from neoxlite.convert.tokenizer_export import generation_config, ids_of, write_tokenizer
from neoxlite.convert.weight import Weight, cast
from neoxlite.model.spec import ModelSpec
from neoxlite.tokenizers import Tokenizer, build_tokenizer

SOURCE_CONFIG = "hf_config.json"
"""The config.json that a model came with, kept beside its tokenizer."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    class_name: str
    parameters: int
    nbytes: int
    comparison: Comparison


def export(
    folder: Path,
    target: Path,
    *,
    family: str | None = None,
    dtype: torch.dtype | None = None,
    shard_bytes: int,
    with_tokenizer: bool = True,
    prompt: str = PROMPT,
) -> Exported:
    """Write the checkpoint in ``folder`` as a Hugging Face folder ``target``.

    Args:
        family: architecture (`neoxlite.convert.families`); by default the one it came from or the first that fits.
        dtype: of the weights; by default as they are.

    Raises:
        CheckpointError: the checkpoint is damaged or has no such form; the logits or the tokenizer's ids differ; or
            ``target`` cannot be written. Nothing is left of it then.
    """
    return_freed_blocks()
    refuse_existing(target)
    source = OwnCheckpoint.open(folder)
    spec = source.spec
    came_from = _came_from(folder)
    kind = family_of(spec, family or _usable(spec, came_from.get("model_type")))
    weights = {name: _as(weight, dtype) for name, weight in source.weights.items()}
    stored = kind.export(spec, weights)
    tokenizer = _tokenizer(source) if with_tokenizer else None
    nbytes = sum(weight.nbytes for weight in stored.values())
    require_room(target, nbytes)
    with new_folder(target) as temporary:
        write_weights(temporary, stored, shard_bytes)
        config = _config(kind, spec, came_from, tokenizer, weights)
        write_json(temporary / CONFIG, config)
        write_json(temporary / "generation_config.json", {"_from_model_config": True, **ids_of(config)})
        if tokenizer is not None:
            write_tokenizer(temporary, source.cfg, tokenizer, spec.max_position_embeddings)
        tokens = prompt_tokens(tokenizer.encode(prompt) if tokenizer is not None else None, spec)
        comparison = compare_with_transformers(spec, weights, temporary, tokens, kind.class_name)
    return Exported(kind.class_name, sum(weight.numel for weight in stored.values()), nbytes, comparison)


def _as(weight: Weight, dtype: torch.dtype | None) -> Weight:
    return weight if dtype is None else cast(weight, dtype)


def _came_from(folder: Path) -> dict[str, Any]:
    path = folder / TOKENIZER / SOURCE_CONFIG
    return read_json(path) if path.is_file() else {}


def _usable(spec: ModelSpec, model_type: Any) -> str | None:
    """Return the architecture a model came from, if it can still be that."""
    return next((one.name for one in FAMILIES if one.name == model_type and not one.obstacles(spec)), None)


def _tokenizer(source: OwnCheckpoint) -> Tokenizer:
    cfg = source.cfg
    return build_tokenizer(cfg.tokenizer_type, cfg.vocab_file, cfg.merge_file)


def _config(
    family: Family, spec: ModelSpec, came_from: dict[str, Any], tokenizer: Tokenizer | None, weights: dict[str, Weight]
) -> dict[str, Any]:
    """Return config.json: what the model is, and of the one it came from special tokens and words."""
    same = came_from.get("model_type") == family.name
    ids = ids_of(came_from) if same else generation_config(tokenizer)
    config = {
        "architectures": [family.class_name],
        "model_type": family.name,
        **family.config(spec),
        "torch_dtype": str(weights["0.word_embeddings.weight"].dtype).removeprefix("torch."),
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **ids,
    }
    if same and config["hidden_act"] == TANH[0] and came_from.get("hidden_act") in TANH:
        config["hidden_act"] = came_from["hidden_act"]  # one function by several names
    return config
