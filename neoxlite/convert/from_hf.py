"""A Hugging Face folder becomes a checkpoint, with a configuration that trains it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from neoxlite.config import NeoxConfig, load_config
from neoxlite.convert.compare import PROMPT, Comparison, checked, hf_logits, prompt_tokens
from neoxlite.convert.families import family_named
from neoxlite.convert.family import Family
from neoxlite.convert.hf_folder import HfFolder
from neoxlite.convert.memory import return_freed_blocks
from neoxlite.convert.own import TOKENIZER, NewCheckpoint, config_text, training_entry, write_checkpoint
from neoxlite.convert.shape import Parameter, parameters_of
from neoxlite.convert.staging import new_folder, refuse_existing, write_file
from neoxlite.convert.streamed import our_logits
from neoxlite.convert.tensor_file import TensorFile
from neoxlite.convert.to_hf import SOURCE_CONFIG
from neoxlite.convert.tokenizer_export import companions, detect
from neoxlite.convert.weight import Weight
from neoxlite.errors import CheckpointError, DataError
from neoxlite.model.spec import ModelSpec
from neoxlite.optim.schedule import Schedule
from neoxlite.tokenizers import Tokenizer, build_tokenizer

_PRECISION = {torch.bfloat16: "bfloat16", torch.float16: "bfloat16"}
# A start for a fine-tuning; every number is the user's to change.
_TRAINING: dict[str, Any] = {
    "optimizer": {"type": "Adam", "params": {"lr": 1.0e-5, "betas": [0.9, 0.95], "eps": 1.0e-8}},
    "min_lr": 1.0e-6,
    "lr_decay_style": "cosine",
    "warmup": 0.01,
    "weight_decay": 0.1,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 1},
    "train_micro_batch_size_per_gpu": 1,
    "train_iters": 1000,
    "eval_interval": 500,
    "eval_iters": 10,
    "log_interval": 10,
    "checkpoint_factor": 500,
}


@dataclass(frozen=True)
class Imported:
    """What was written."""

    folder: Path
    config: Path
    class_name: str
    parameters: int
    comparison: Comparison


def import_folder(folder: Path, root: Path, *, tokenizer_folder: Path | None = None, prompt: str = PROMPT) -> Imported:
    """Write the model in ``folder`` as checkpoint ``root``/global_step0, with ``root``/config.yml and its tokenizer.

    Args:
        tokenizer_folder: where the tokenizer's files are; by default in ``folder``.

    Raises:
        CheckpointError: the folder is damaged or holds a model that neoxlite has not; the logits differ; or ``root``
            cannot be written.
    """
    return_freed_blocks()
    source = HfFolder.open(folder)
    family = family_named(source.config.get("model_type"))
    refuse_existing(root)
    found = detect(tokenizer_folder or folder)
    files = companions(tokenizer_folder or folder)
    tokenizer = _tokenizer(tokenizer_folder or folder, found)
    cfg = _configuration(family, source, found, root)
    spec = ModelSpec.from_config(cfg, cfg.padded_vocab_size(tokenizer.vocab_size))
    parameters = parameters_of(spec)
    weights = _weights(family, spec, source, parameters)
    ids = tokenizer.encode(prompt)

    comparison: list[Comparison] = []

    def check(written: Path) -> None:
        tokens = prompt_tokens(ids, spec)
        ours = our_logits(spec, read_back(written, parameters), tokens)
        comparison.append(checked(ours, hf_logits(folder, tokens), f"{folder} in transformers"))

    texts = {f"{TOKENIZER}/{name}": data for name, data in files.items()}
    texts[f"{TOKENIZER}/{SOURCE_CONFIG}"] = (folder / "config.json").read_bytes()
    text = _commented(cfg, folder, weights.values())
    position = {"iteration": 0, "consumed_samples": 0, "skipped_steps": 0, "optimizer_step": 0}
    schedule = Schedule.from_config(cfg).state()
    training = training_entry(spec, cfg, position=position, schedule=schedule, source=f"transformers {family.name}")
    new = NewCheckpoint(0, weights, None, training, {**texts, "config.yml": config_text(cfg)})
    with new_folder(root) as temporary:
        for name, data in {**texts, "config.yml": text}.items():
            write_file(temporary / name, data)
        written = root / write_checkpoint(temporary, new, check).name
    numel = sum(weight.numel for weight in weights.values())
    return Imported(written, root / "config.yml", family.class_name, numel, comparison[0])


def read_back(folder: Path, parameters: dict[str, Parameter]) -> dict[str, Weight]:
    """Return the weights of the layer files in ``folder`` by `Parameter` name."""
    found = {}
    for index in sorted({int(name.split(".")[0]) for name in parameters}):
        weights = TensorFile(folder / f"layer_{index:02d}.safetensors").weights()
        found.update({f"{index}.{local}": weight for local, weight in weights.items()})
    return found


def _tokenizer(folder: Path, found: dict[str, str]) -> Tokenizer:
    try:
        files = (folder / found[key] if key in found else None for key in ("vocab_file", "merge_file"))
        return build_tokenizer(found["tokenizer_type"], *files)
    except DataError as error:
        raise CheckpointError(error.message, hint="give another tokenizer with --tokenizer DIR", exit_code=2) from None


def _configuration(family: Family, source: HfFolder, tokenizer: dict[str, str], root: Path) -> NeoxConfig:
    keys = family.keys(source.config)
    embedding = next((weight for name, weight in source.weights.items() if _is_embedding(name)), None)
    if embedding is None:
        raise CheckpointError(f"{source.folder} has no embedding matrix", hint="copy the folder again")
    keys |= {"padded_vocab_size": embedding.shape[0], "make_vocab_size_divisible_by": 1}
    dtypes = Counter[torch.dtype]()
    for weight in source.weights.values():
        dtypes[weight.dtype] += weight.numel
    precision = _PRECISION.get(dtypes.most_common(1)[0][0])
    if precision is not None:
        keys["precision"] = precision
    keys |= {key: f"{root}/{TOKENIZER}/{name}" if key.endswith("file") else name for key, name in tokenizer.items()}
    keys |= _TRAINING
    keys |= {"load": str(root), "finetune": True, "save": f"{root}-finetuned"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yml"
        path.write_text(yaml.safe_dump(keys, allow_unicode=True, sort_keys=False), encoding="utf-8")
        return load_config(path)


def _is_embedding(name: str) -> bool:
    return name.endswith(("embed_in.weight", "embed_tokens.weight"))


def _weights(family: Family, spec: ModelSpec, source: HfFolder, parameters: dict[str, Parameter]) -> dict[str, Weight]:
    taken = family.take(spec, source.weights)
    for name, parameter in parameters.items():
        if taken[name].shape != parameter.shape:
            raise CheckpointError(
                f"{source.folder}: what becomes {name} has the shape {list(taken[name].shape)}, config.json makes it "
                f"{list(parameter.shape)}",
                hint="copy the folder again: config.json and weights do not belong together",
            )
    expected = set(family.export(spec, {name: taken[name] for name in parameters}))
    heads = {"lm_head.weight", "embed_out.weight"}  # a tied one may be stored besides, under either name
    unused = sorted(set(source.weights) - expected - heads)
    if unused:
        raise CheckpointError(
            f"{source.folder} has the weight {unused[0]}, which config.json does not name",
            hint="it is another model",
            exit_code=2,
        )
    return {name: taken[name] for name in parameters}


def _commented(cfg: NeoxConfig, folder: Path, weights: Iterable[Weight]) -> bytes:
    head = (
        f"# Made from {folder.name} by neoxlite convert from-hf. The first keys are the model: leave them.\n"
        "# Give data_path (neoxlite data tokenize), and training numbers of your own.\n"
    )
    if any(weight.dtype == torch.float16 for weight in weights):
        head += (
            "# The weights are fp16. The fp32 master weights begin with exactly these values, the model computes with\n"
            "# them in bfloat16; precision: fp32 computes with all of their digits.\n"
        )
    return head.encode() + config_text(cfg)
