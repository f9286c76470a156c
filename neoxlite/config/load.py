"""From files to a `NeoxConfig`: read, modernise, override, type, derive, check."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from neoxlite.config.advice import differences, hardly_meant
from neoxlite.config.architecture import Architecture, expand_attention
from neoxlite.config.batch import Batch, Layout, layout, resolve_batch
from neoxlite.config.blocks import BLOCKS, typed_block
from neoxlite.config.checks import (
    Where,
    check_accumulation,
    check_given,
    check_model,
    check_optimizer,
    check_recomputation,
    check_sequence,
    check_training,
)
from neoxlite.config.keys import Key, Support, block_table, key_table, near_names, old_key_table
from neoxlite.config.neox import NeoxConfig
from neoxlite.config.offload import Offload, resolve_offload
from neoxlite.config.old_keys import modernise
from neoxlite.config.overrides import apply_overrides, default_block
from neoxlite.config.precision import resolve_precision, resolve_zero_stage
from neoxlite.config.reader import Entry, Files, read_files
from neoxlite.config.support import ignored_keys, unsupported_keys, way_out
from neoxlite.config.values import plain, typed
from neoxlite.errors import ConfigError

ConfigPath = str | os.PathLike[str]


def load_config(
    paths: ConfigPath | Sequence[ConfigPath],
    conf_dir: ConfigPath | None = None,
    overrides: Mapping[str, Any] | None = None,
    world_size: int | None = None,
    *,
    allow_unsupported: bool = False,
    launched: bool = False,
) -> NeoxConfig:
    """Read GPT-NeoX configuration files and resolve every key.

    Args:
        paths: one or more files; ``.yml`` may be left out.
        conf_dir: folder that every name is relative to (``-d``).
        overrides: dotted key -> value, over the files (``--set``).
        world_size: number of GPUs; by default ``global_num_gpus``, else one copy of the model.
        allow_unsupported: list what neoxlite cannot train in ``NeoxConfig.unsupported`` rather than refuse it: for
            arithmetic on any GPT-NeoX configuration.
        launched: this is a rank of ``neoxlite launch``, which has read the keys of its own; they get no warning.

    Raises:
        ConfigError: any mistake in the files or values, with file, line and what to do.
    """
    names = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not names:
        raise ConfigError("no configuration file is given", hint="give one or more .yml files")
    files = read_files([os.fspath(name) for name in names], Path(conf_dir) if conf_dir is not None else None)
    if not files.entries:
        raise ConfigError(
            f"{', '.join(files.paths)}: no keys in it", hint="give a file with model and training settings"
        )
    entries, warnings = modernise(files.entries)
    entries = apply_overrides(entries, overrides or {})
    _refuse_unknown(entries)
    entries = _null_for_none(entries, warnings)
    values = {name: _value(key, entries.get(name)) for name, key in key_table().items()}
    for name in BLOCKS:
        if values[name] is not None:
            values[name] = typed_block(name, dataclasses.replace(entries[name], value=values[name]))
    resolver = _Resolver(values, entries, files, warnings, world_size)
    return resolver.resolve(allow_unsupported=allow_unsupported, launched=launched)


def _null_for_none(entries: Mapping[str, Entry], warnings: list[str]) -> dict[str, Entry]:
    """Take Python's None, a text to YAML, for null where a path or a name may be left out."""
    result = dict(entries)
    for name, entry in entries.items():
        if entry.value == "None" and key_table()[name].type == "str" and key_table()[name].default is None:
            result[name] = dataclasses.replace(entry, value=None)
            warnings.append(f"{entry.where}: {name}: None is a text in YAML, and taken as null here: write null")
    return result


def _value(key: Key, entry: Entry | None) -> Any:
    """Return the typed value, or the default where none or null is given, and of what is computed from other keys.

    Null is a value of its own for gradient_accumulation_steps: "derive it", where the default is 1.
    """
    value = key.default if entry is None else typed(key, entry.value, entry.where)
    if key.support is Support.DERIVED:
        return key.default
    return key.default if value is None and key.name != "gradient_accumulation_steps" else value


def _refuse_unknown(entries: Mapping[str, Entry]) -> None:
    unknown = [(name, entry) for name, entry in entries.items() if name not in key_table()]
    if not unknown:
        return
    name, entry = unknown[0]
    if name in old_key_table():  # by --set: in a file it would have been taken for what it meant
        instead = old_key_table()[name].instead
        raise ConfigError(
            f"{entry.where}: {plain(entry.spelling)} is a key of an earlier GPT-NeoX release",
            hint=f"it is {instead} now" if instead else f"remove {plain(entry.spelling)}",
        )
    near = near_names(name)
    rest = [plain(other.spelling) for _, other in unknown[1:]]
    others = f" (and {len(rest)} more: {', '.join(rest[:5])})" if rest else ""
    raise ConfigError(
        f"{entry.where}: {plain(entry.spelling)} is not a GPT-NeoX key{others}",
        hint=f"did you mean {' or '.join(near)}?" if near else f"remove {plain(entry.spelling)}",
    )


def _refuse_unsupported(unsupported: Mapping[str, str]) -> NoReturn:
    name, reason = next(iter(unsupported.items()))
    more = len(unsupported) - 1
    raise ConfigError(
        f"{reason} (and {more} more)" if more else reason,
        hint=way_out(name) + ("; neoxlite config show FILES lists them all" if more else ""),
    )


def _lr(optimizer: Mapping[str, Any]) -> float:
    return float(optimizer["params"].get("lr", block_table()["optimizer.params.lr"].default))


class _Resolver:
    """Fills in, one group at a time, what follows from other keys. ``values`` holds all keys of the table by name."""

    def __init__(
        self,
        values: dict[str, Any],
        entries: dict[str, Entry],
        files: Files,
        warnings: list[str],
        world_size: int | None,
    ) -> None:
        self.values = values
        self.entries = entries
        self.files = files
        self.warnings = warnings
        self.asked_world_size = world_size
        self.where = Where(entries, files.paths)
        self.offload: Offload | None = None

    def resolve(self, *, allow_unsupported: bool, launched: bool) -> NeoxConfig:
        values = self.values
        self._optimizer()
        check_given(values, self.where)
        with self.where.of("attention_config", "num_layers"):
            values["attention_config"] = expand_attention(values["attention_config"], values["num_layers"])
        check_model(values, self.where)
        sizes = self._layout()
        batch = self._batch(sizes)
        self._precision()
        reason = self._zero(sizes)
        check_recomputation(values, self.where)
        self._small_derivations()
        check_training(values, self.where)
        self._weights()
        self.warnings += hardly_meant(values, self.entries)
        self.warnings += ignored_keys(values, self.entries, launched=launched)
        unsupported = unsupported_keys(values, self.entries)
        if unsupported and not allow_unsupported:
            _refuse_unsupported(unsupported)
        return self._build(sizes, batch, reason, [f"{text}: {way_out(name)}" for name, text in unsupported.items()])

    def _optimizer(self) -> None:
        values = self.values
        block = values["optimizer"] if values["optimizer"] is not None else default_block("optimizer")
        check_optimizer(block, self.where)
        values.update(optimizer=block, lr=_lr(block), optimizer_type=block["type"])

    def _layout(self) -> Layout:
        values = self.values
        pipe, model = values["pipe_parallel_size"], values["model_parallel_size"]
        given = values["global_num_gpus"]
        asked = self.asked_world_size
        if asked is not None and given not in (None, asked):
            self.warnings.append(
                f"{self.where.prefix('global_num_gpus')}global_num_gpus is {given}; the run has {asked}"
            )
        world_size = next((size for size in (asked, given) if size is not None), max(1, pipe) * max(1, model))
        with self.where.of("pipe_parallel_size", "model_parallel_size"):
            sizes = layout(world_size, pipe, model, self.values["num_attention_heads"])
        check_sequence(values, sizes.model, self.where)
        if values["sequence_parallel"] and sizes.model == 1:
            self.warnings.append("sequence_parallel has no effect: model_parallel_size is 1")
        values.update(
            global_num_gpus=world_size,
            world_size=world_size,
            is_pipe_parallel=pipe >= 1,
            model_parallel_size=sizes.model,
        )
        return sizes

    def _batch(self, sizes: Layout) -> Batch:
        values = self.values
        names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        with self.where.of(*names):
            train, micro, accumulation = (values[name] for name in names)
            if train is not None and micro is not None and names[-1] not in self.entries:
                accumulation = None  # it follows; GPT-NeoX takes its default of 1, and mostly refuses the batch then
            batch = resolve_batch(train, micro, accumulation, sizes.data)
        values.update(zip(names, (batch.train, batch.micro, batch.accumulation), strict=True), batch_size=batch.micro)
        return batch

    def _precision(self) -> None:
        values = self.values
        with self.where.of("fp16", "bf16", "precision"):
            precision = resolve_precision(values["precision"], values["fp16"], values["bf16"])
        values.update(precision=precision, data_types=self._data_types(precision))

    def _zero(self, sizes: Layout) -> str | None:
        """Fill in the ZeRO block and stage, and return why the stage is not the configured one."""
        values = self.values
        default = default_block("zero_optimization")
        block = values["zero_optimization"] if values["zero_optimization"] is not None else default
        if "stage" not in block:
            raise self.where.error("zero_optimization has no stage", "zero_optimization", hint="add stage: 1")
        with self.where.of("zero_optimization", "pipe_parallel_size"):
            stage, reason = resolve_zero_stage(block["stage"], values["precision"], sizes.pipe)
        if reason is not None:
            self.warnings.append(f"ZeRO stage {block['stage']} is raised to {stage}: {reason}")
        with self.where.of("zero_optimization"):
            self.offload = resolve_offload(block, stage)
        values.update(zero_optimization=block, zero_stage=stage)
        for name in ("reduce_scatter", "contiguous_gradients", "reduce_bucket_size", "allgather_bucket_size"):
            values[f"zero_{name}"] = block.get(name, default[name])
        return reason

    def _data_types(self, precision: str) -> dict[str, Any]:
        block = dict(self.values["data_types"] or {})
        check_accumulation(block.get("grad_accum_dtype"), precision, self.where)
        if block.get("grad_accum_dtype") is None and precision == "bfloat16":
            block["grad_accum_dtype"] = "fp32"
            self.warnings.append("bfloat16: gradients are accumulated in fp32 (data_types.grad_accum_dtype)")
        return block

    def _weights(self) -> None:
        """Make the checked weights numbers; without weights all paths weigh the same."""
        for part in ("train", "valid", "test"):
            paths, weights = self.values[f"{part}_data_paths"], self.values[f"{part}_data_weights"]
            if paths:
                self.values[f"{part}_data_weights"] = [float(weight) for weight in weights or [1.0] * len(paths)]

    def _small_derivations(self) -> None:
        values = self.values
        values.update(
            train_iters=values["train_iters"] or 0,
            clip_grad=values["gradient_clipping"],
            dynamic_loss_scale=values["loss_scale"] is None,
            text_gen_type=values["text_gen_type"] or "unconditional",
            sparsity_config=values["sparsity_config"] or {},
        )

    def _build(self, sizes: Layout, batch: Batch, reason: str | None, unsupported: list[str]) -> NeoxConfig:
        values = {**self.values, "data_parallel_size": sizes.data, "config_files": self.files.texts}
        padded = values.pop("padded_vocab_size")
        shape = {field.name for field in dataclasses.fields(Architecture)} - {"attention_kinds"}
        fields = {field.name for field in dataclasses.fields(NeoxConfig)}
        return NeoxConfig(
            **{name: value for name, value in values.items() if name in fields},
            config_paths=self.files.paths,
            warnings=self.warnings,
            notes=differences(values, self.entries),
            unsupported=unsupported,
            zero_stage_reason=reason,
            offload=self.offload,
            batch=batch,
            architecture=Architecture(
                **{name: values[name] for name in shape}, attention_kinds=tuple(values["attention_config"])
            ),
            _entries=self.entries,
            _padded_vocab_size=padded,
            other_keys={name: value for name, value in values.items() if name not in fields},
        )
