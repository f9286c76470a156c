"""Our own checkpoints, read by rows and written as a stream."""

from __future__ import annotations

import datetime
import math
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from neoxlite import __version__
from neoxlite.checkpoint.architecture import architecture_of
from neoxlite.checkpoint.folder import step_name
from neoxlite.checkpoint.lock import SaveLock
from neoxlite.checkpoint.manifest import Manifest, crc32_of
from neoxlite.checkpoint.optimizer_state import MASTER
from neoxlite.checkpoint.pieces import optimizer_files
from neoxlite.checkpoint.restore import saved_config
from neoxlite.checkpoint.save import begin_folder, move_into_place
from neoxlite.config import NeoxConfig
from neoxlite.convert.shape import Parameter, parameters_of
from neoxlite.convert.staging import require_room, write_file, writing
from neoxlite.convert.tensor_file import TensorFile, write_tensors
from neoxlite.convert.upstream_optimizer import State
from neoxlite.convert.weight import Weight, flat, joined, part, shaped, stacked
from neoxlite.errors import CheckpointError
from neoxlite.model.spec import ModelSpec

TOKENIZER = "tokenizer"


@dataclass(frozen=True)
class OwnCheckpoint:
    """A checkpoint folder that neoxlite wrote, checked, with its weights ready to be read."""

    folder: Path
    files: Collection[str]
    training: dict[str, Any]
    cfg: NeoxConfig
    spec: ModelSpec
    parameters: dict[str, Parameter]
    weights: dict[str, Weight]

    @classmethod
    def open(cls, folder: Path) -> OwnCheckpoint:
        """Check sizes and checksums of ``folder`` and look at its tensors.

        Raises:
            CheckpointError: it is damaged, or its files are not the model's that its configuration describes.
        """
        manifest = Manifest.read(folder)
        damage = manifest.damage(folder)
        if damage:
            more = f" (and {len(damage) - 1} more)" if damage[1:] else ""
            raise CheckpointError(f"{folder} is damaged: {damage[0]}{more}", hint="take another checkpoint")
        cfg = saved_config(folder, manifest)
        spec = ModelSpec.from_config(cfg, int(manifest.training["padded_vocab_size"]))
        parameters = parameters_of(spec)
        return cls(folder, manifest.files, manifest.training, cfg, spec, parameters, _weights(folder, parameters))

    def optimizer_state(self) -> State:
        """Return the optimizer state, whole and by parameter, whatever pieces it was written in.

        Raises:
            CheckpointError: some of it is missing.
        """
        pieces: dict[tuple[str, str], list[_Piece]] = defaultdict(list)
        for file in optimizer_files(self.files):
            for key, weight in TensorFile(self.folder / file).weights().items():
                kind, name, start, *of_slice = key.split("/")
                rank, size = (int(number) for number in of_slice) if of_slice else (0, 1)
                pieces[name, kind].append(_Piece(int(start), rank, size, weight))
        state: State = defaultdict(dict)
        for (name, kind), found in pieces.items():
            if name not in self.parameters:
                raise CheckpointError(f"{self.folder} has optimizer state of {name}, which the model has not")
            state[name][kind] = self._join(name, kind, found)
        return dict(state)

    def _join(self, name: str, kind: str, pieces: list[_Piece]) -> Weight:
        parameter, size = self.parameters[name], pieces[0].size
        shape = list(parameter.shape)
        if parameter.dim is not None:
            shape[parameter.dim] //= size
        slices = []
        for rank in range(size):
            mine = sorted((one for one in pieces if one.rank == rank), key=lambda one: one.start)
            position, parts = 0, []
            for one in mine:
                end = one.start + one.weight.numel
                if one.start > position:
                    break
                if end > position:  # a gap raises below; what overlaps is the same
                    parts.append(part(one.weight, position - one.start, one.weight.numel))
                    position = end
            whole = stacked(parts) if parts else None
            if whole is None or whole.numel != math.prod(shape):
                raise CheckpointError(
                    f"{self.folder} has {position:,} of {math.prod(shape):,} elements of {kind} of {name}",
                    hint="take another checkpoint, or omit the optimizer with --no-optimizer",
                )
            slices.append(shaped(whole, tuple(shape)))
        return joined(slices, parameter.dim or 0, parameter.parts)

    def texts(self) -> dict[str, bytes]:
        """Return the small files: configurations and tokenizer."""
        paths = [self.folder / "config.yml", *self.folder.glob("configs/*"), *self.folder.glob(f"{TOKENIZER}/**/*")]
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths if path.is_file()}


@dataclass(frozen=True)
class _Piece:
    start: int
    rank: int
    size: int
    weight: Weight


def _weights(folder: Path, parameters: Mapping[str, Parameter]) -> dict[str, Weight]:
    found = {}
    for index in sorted({int(name.split(".")[0]) for name in parameters}):
        path = folder / f"layer_{index:02d}.safetensors"
        found.update({f"{index}.{name}": weight for name, weight in TensorFile(path).weights().items()})
    for name in sorted(found.keys() ^ parameters.keys()):
        whose = "the checkpoint" if name in found else "its configuration"
        raise CheckpointError(f"{folder}: only {whose} has the parameter {name}", hint="take another checkpoint")
    for name, parameter in parameters.items():
        if found[name].shape != parameter.shape:
            raise CheckpointError(
                f"{folder}: {name} has the shape {list(found[name].shape)}, its configuration says "
                f"{list(parameter.shape)}",
                hint="take another checkpoint",
            )
    return {name: found[name] for name in parameters}


@dataclass(frozen=True)
class NewCheckpoint:
    """What is to be written."""

    iteration: int
    weights: Mapping[str, Weight]
    state: State | None
    """None leaves the optimizer out."""
    training: dict[str, Any]
    texts: dict[str, bytes]


def training_entry(
    spec: ModelSpec, cfg: NeoxConfig, *, position: Mapping[str, int], schedule: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """Return the manifest's state of training for a model from elsewhere.

    Args:
        position: iteration, consumed_samples, skipped_steps, optimizer_step, and what else the source says.
        source: what it was made from.
    """
    return {
        "world_size": cfg.world_size,
        "data_parallel_size": cfg.data_parallel_size,
        "train_batch_size": cfg.train_batch_size,
        "zero_stage": cfg.zero_stage,
        "precision": cfg.precision,
        **position,
        "with_optimizer": False,
        "schedule": dict(schedule),
        "padded_vocab_size": spec.padded_vocab_size,
        "architecture": architecture_of(spec),
        "neoxlite": __version__,
        "converted_from": source,
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def config_text(cfg: NeoxConfig) -> bytes:
    """Return the keys that were set, as ``config.yml`` of a checkpoint."""
    return yaml.safe_dump(cfg.as_dict(), allow_unicode=True, sort_keys=False).encode()


def write_checkpoint(root: Path, new: NewCheckpoint, check: Callable[[Path], None]) -> Path:
    """Write a checkpoint under ``root`` and return its folder; it gets its name when ``check`` has passed.

    Args:
        check: looks at the written folder, which has no manifest yet, and raises if it is not right.

    Raises:
        CheckpointError: it is there already, cannot be written, or is not right; nothing is left then.
    """
    target = root / step_name(new.iteration)
    if target.exists():
        raise CheckpointError(f"{target} exists", hint="give another folder, or remove this one", exit_code=2)
    layers = _by_layer(new.weights)
    states = _by_layer(new.state or {})
    needed = sum(weight.nbytes for weight in new.weights.values())
    needed += sum(weight.nbytes for kinds in (new.state or {}).values() for weight in kinds.values())
    require_room(root, needed)
    with writing(target), SaveLock(root) as lock:
        lock.acquire()
        temporary = begin_folder(root, new.iteration)
        try:
            files = {}
            for index, weights in layers.items():
                name = f"layer_{index:02d}.safetensors"
                files[name] = write_tensors(temporary / name, weights, {})
            for index, kinds in states.items():
                name = f"optimizer_{index:02d}-0000.safetensors"
                files[name] = write_tensors(temporary / name, _pieces(index, kinds), {})
            for name, data in new.texts.items():
                write_file(temporary / name, data)
                files[name] = {"bytes": len(data), "crc32": crc32_of(temporary / name)}
            check(temporary)
            training = {**new.training, "with_optimizer": new.state is not None}
            move_into_place(temporary, target, files, training)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return target


def _by_layer(table: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    layers: dict[int, dict[str, Any]] = defaultdict(dict)
    for name, value in table.items():
        index, _, local = name.partition(".")
        layers[int(index)][local] = value
    return layers


def _pieces(index: int, kinds_of: Mapping[str, Mapping[str, Weight]]) -> dict[str, Weight]:
    """Return one piece for each whole tensor, under its `neoxlite.checkpoint.pieces` key."""
    return {
        f"{kind}/{index}.{local}/0": flat(weight) for local, kinds in kinds_of.items() for kind, weight in kinds.items()
    }


def without_masters(state: State) -> State:
    """Return the state without fp32 master weights, which an fp32 checkpoint's weights are themselves."""
    return {name: {kind: one for kind, one in kinds.items() if kind != MASTER} for name, kinds in state.items()}
