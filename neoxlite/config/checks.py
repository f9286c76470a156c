"""What a configuration must satisfy as a whole, after each key has its type.

The first group are GPT-NeoX's own rules (megatron/neox_arguments/arguments.py, ``validate_values``); the optimiser's
parameters are checked here too, where upstream fails later, inside the model.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from neoxlite.config.reader import Entry
from neoxlite.config.values import as_number, is_beta, shown
from neoxlite.errors import ConfigError

_REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "seq_length", "max_position_embeddings")
_PARTS = ("train", "valid", "test")


class Where:
    """Puts the place of a key before the message of an error."""

    def __init__(self, entries: Mapping[str, Entry], paths: Sequence[str] = ()) -> None:
        self._entries = entries
        self._files = f"{', '.join(paths)}: " if paths else ""

    def prefix(self, *keys: str) -> str:
        """Return ``file.yml:12: `` of the first of ``keys`` that was given, else the files together.

        A dotted key is looked for inside its block.
        """
        for key in keys:
            top, _, path = key.partition(".")
            if top in self._entries:
                entry = self._entries[top]
                return f"{(entry.place_of(path) or entry.place).where}: "
        return self._files

    def error(self, message: str, *keys: str, hint: str) -> ConfigError:
        """Return an error placed at the first of ``keys``."""
        return ConfigError(self.prefix(*keys) + message, hint=hint)

    @contextlib.contextmanager
    def of(self, *keys: str) -> Iterator[None]:
        """Place the errors of a block at the first of ``keys``."""
        try:
            yield
        except ConfigError as error:
            raise ConfigError(self.prefix(*keys) + error.message, hint=error.hint) from error


def check_given(values: Mapping[str, Any], where: Where) -> None:
    """Check that the sizes and the length of training are given. Raises ConfigError."""
    for key in _REQUIRED:
        if values[key] is None:
            raise where.error(f"{key} is not given", hint=f"add {key} to one of the files, or --set {key}=...")
    _check_length(values, where)


def check_model(values: Mapping[str, Any], where: Where) -> None:
    """Check that the sizes fit together. Raises ConfigError.

    A model with Mamba blocks is left to what neoxlite says of them: as in GPT-NeoX its heads need not divide it.
    """
    if "mamba" in values["attention_config"]:
        return
    hidden, heads = values["hidden_size"], values["num_attention_heads"]
    if hidden % heads:
        raise where.error(
            f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}",
            "num_attention_heads",
            "hidden_size",
            hint=f"nearest: {_near_divisors(hidden, heads)} heads",
        )
    sequence, positions = values["seq_length"], values["max_position_embeddings"]
    if positions < sequence:
        raise where.error(
            f"seq_length {sequence} is more than max_position_embeddings {positions}",
            "seq_length",
            hint=f"set max_position_embeddings: {sequence}",
        )
    _check_rotary(values, where)
    _check_sinusoids(values, where)
    _check_kv_heads(values, where)


def _check_length(values: Mapping[str, Any], where: Where) -> None:
    """Check that the length of training is given once."""
    iterations, epochs = values["train_iters"], values["train_epochs"]
    if iterations is None and epochs is None:
        raise where.error(
            "train_iters is not given",
            hint="add train_iters to one of the files, or --set train_iters=...; or train_epochs",
        )
    if iterations is not None and epochs is not None:
        raise where.error(
            f"train_epochs {epochs} and train_iters {iterations} are both given",
            "train_epochs",
            hint="give one of them",
        )


def _near_divisors(number: int, wanted: int, times: int = 1) -> str:
    """Return the divisors on both sides of ``wanted``, each ``times`` as much; the upper one is looked for up to 100
    times as far.
    """
    below = next(divisor for divisor in range(min(number, wanted), 0, -1) if number % divisor == 0)
    above = next((divisor for divisor in range(wanted, min(number, 100 * wanted)) if number % divisor == 0), number)
    return " or ".join(str(times * divisor) for divisor in dict.fromkeys((below, above)))


def _check_rotary(values: Mapping[str, Any], where: Where) -> None:
    if values["pos_emb"] != "rotary":
        return
    head_dim = values["hidden_size"] // values["num_attention_heads"]
    rotated = int(head_dim * values["rotary_pct"])
    if rotated == 0 or rotated % 2:
        raise where.error(
            f"rotary_pct {values['rotary_pct']:g} of a head dimension of {head_dim} is {rotated} channels; "
            "rotation needs an even number, at least 2",
            "rotary_pct",
            "num_attention_heads",
            hint=f"nearest: rotary_pct {_near_shares(rotated, head_dim)}",
        )


def _near_shares(rotated: int, head_dim: int) -> str:
    """Return the shares of a head nearest to ``rotated`` channels that are even and at least 2."""
    below, above = rotated // 2 * 2, rotated // 2 * 2 + 2
    # Rounded up, so that the product with the head is cut to these channels and not to one less.
    shares = [math.ceil(channels / head_dim * 10_000) for channels in (below, above) if 2 <= channels <= head_dim]
    return " or ".join(f"{share / 10_000:g}" for share in shares) or f"none: a head of {head_dim} channels has no pair"


def _check_sinusoids(values: Mapping[str, Any], where: Where) -> None:
    if values["pos_emb"] == "sinusoidal" and values["hidden_size"] % 2:
        raise where.error(
            f"pos_emb sinusoidal: hidden_size {values['hidden_size']} cannot be halved into sines and cosines",
            "hidden_size",
            hint="make hidden_size even",
        )


def _check_kv_heads(values: Mapping[str, Any], where: Where) -> None:
    heads, kv, tensor = (
        values["num_attention_heads"],
        values["num_kv_heads"],
        max(1, values["model_parallel_size"] or 0),
    )
    if heads % tensor:
        raise where.error(
            f"num_attention_heads {heads} cannot be shared by model_parallel_size {tensor}",
            "model_parallel_size",
            hint=f"nearest: model_parallel_size {_near_divisors(heads, tensor)}",
        )
    if kv is not None and (heads % kv or kv % tensor):
        raise where.error(
            f"num_kv_heads {kv} must divide num_attention_heads {heads}"
            + (f" and be a multiple of model_parallel_size {tensor}" if tensor > 1 else ""),
            "num_kv_heads",
            # What divides the heads of one rank, times the ranks, divides all of them.
            hint=f"nearest: num_kv_heads {_near_divisors(heads // tensor, max(1, kv // tensor), times=tensor)}",
        )


def check_sequence(values: Mapping[str, Any], tensor: int, where: Where) -> None:
    """Check that sequence parallelism can share out the sequence over ``tensor`` ranks. Raises ConfigError."""
    length = values["seq_length"]
    if values["sequence_parallel"] and length % tensor:
        raise where.error(
            f"sequence_parallel cannot share out seq_length {length} over model_parallel_size {tensor}",
            "sequence_parallel",
            hint=f"nearest: seq_length {length // tensor * tensor or tensor} or {-(-length // tensor) * tensor}",
        )


def check_recomputation(values: Mapping[str, Any], where: Where) -> None:
    """Check what activation checkpointing recomputes. Raises ConfigError."""
    if not values["checkpoint_activations"] or values["recompute_granularity"] == "full":
        return
    if values["zero_stage"] == 3:
        raise where.error(
            "recompute_granularity: selective does not go with ZeRO stage 3, whose gradients would be wrong",
            "recompute_granularity",
            hint="the nearest that works: recompute_granularity: full, or zero_optimization.stage: 2",
        )


def check_accumulation(dtype: str | None, precision: str, where: Where) -> None:
    """Check that gradients are added up in fp32 or in the precision of the weights. Raises ConfigError."""
    own = {"bfloat16": "bf16"}.get(precision, precision)
    if dtype not in (None, "fp32", own):
        raise where.error(
            f"data_types.grad_accum_dtype: {dtype} does not go with precision {precision}",
            "data_types",
            hint="use fp32" if own == "fp32" else f"use fp32 or {own}",
        )


def check_training(values: Mapping[str, Any], where: Where) -> None:
    """Check the rules between learning rate, checkpoints, loss and data. Raises ConfigError."""
    if values["min_lr"] > values["lr"]:
        raise where.error(
            f"min_lr {values['min_lr']:g} is more than the learning rate {values['lr']:g}",
            "min_lr",
            hint="min_lr is the floor of the schedule: make it smaller than optimizer.params.lr",
        )
    if values["save"] is not None and values["checkpoint_factor"] is None and not values["extra_save_iters"]:
        raise where.error(
            "save is given, but neither checkpoint_factor nor extra_save_iters",
            "save",
            hint="add checkpoint_factor: the iterations between two checkpoints",
        )
    if values["fp16_lm_cross_entropy"] and values["precision"] != "fp16":
        raise where.error("fp16_lm_cross_entropy needs fp16", "fp16_lm_cross_entropy", hint="remove it or enable fp16")
    factor = values["checkpoint_factor"]
    if factor is not None and values["checkpoint_scale"] == "linear" and factor != int(factor):
        raise where.error(
            f"checkpoint_factor is {factor}; with checkpoint_scale linear it is a number of iterations",
            "checkpoint_factor",
            hint=f"write checkpoint_factor: {max(1, round(factor))}",
        )
    for iteration in values["extra_save_iters"] or []:
        if not isinstance(iteration, int) or isinstance(iteration, bool) or iteration < 0:
            raise where.error(
                f"extra_save_iters holds {shown(iteration)}", "extra_save_iters", hint="list iterations, from 0 up"
            )
    _check_paths(values, where)


def _check_paths(values: Mapping[str, Any], where: Where) -> None:
    given = [part for part in _PARTS if values[f"{part}_data_paths"]]
    if given and len(given) < len(_PARTS):
        missing = ", ".join(f"{part}_data_paths" for part in _PARTS if part not in given)
        raise where.error(
            f"{given[0]}_data_paths is given without {missing}",
            f"{given[0]}_data_paths",
            hint="give all three lists, or data_path with split",
        )
    if given and values["data_path"] is not None:
        raise where.error(
            "data_path and train_data_paths are both given", "data_path", hint="keep one: data_path is divided by split"
        )
    for part in _PARTS:
        _check_weights(part, values, where)


def _check_weights(part: str, values: Mapping[str, Any], where: Where) -> None:
    key = f"{part}_data_weights"
    paths, weights = values[f"{part}_data_paths"] or [], values[key]
    if not all(isinstance(path, str) for path in paths):
        raise where.error(f"{part}_data_paths holds something else than texts", f"{part}_data_paths", hint="quote them")
    if weights is None:
        return
    if len(weights) != len(paths):
        raise where.error(
            f"{key} has {len(weights)} weights for {len(paths)} paths", key, hint="give one weight for each path"
        )
    if any((as_number(weight) or 0) < 0 or as_number(weight) is None for weight in weights) or not any(
        as_number(weight) for weight in weights
    ):
        raise where.error(f"{key} is {shown(weights)}", key, hint="weights are numbers of 0 or more, one above 0")


def check_optimizer(block: Mapping[str, Any], where: Where) -> None:
    """Check the shape of the ``optimizer`` block, whose numbers are typed already. Raises ConfigError."""
    params = block.get("params")
    if "type" not in block or not isinstance(params, dict):
        raise where.error(
            "optimizer needs a type and a params block",
            "optimizer",
            hint="write optimizer: {type: Adam, params: {lr: 1.0e-4, betas: [0.9, 0.95], eps: 1.0e-8}}",
        )
    if "weight_decay" in params:
        raise where.error(
            "optimizer.params.weight_decay is given",
            "optimizer.params.weight_decay",
            hint="move it out: weight_decay is a key of its own",
        )
    betas = params.get("betas", [0.9, 0.999])
    if len(betas) != 2 or not all(map(is_beta, betas)):
        raise where.error(
            f"optimizer.params.betas is {shown(betas)}",
            "optimizer.params.betas",
            hint="write two numbers, as [0.9, 0.95]",
        )
