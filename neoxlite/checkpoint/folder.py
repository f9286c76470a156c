"""Where checkpoints lie and what each folder holds. Imports no torch.

``save/``
    ``latest``                          text ``global_step1000``, as in GPT-NeoX
    ``global_step1000/``
        ``manifest.json``               size and CRC-32 of every other file, and the state of training
        ``layer_02.safetensors``        weights of layer 2 under GPT-NeoX's names, in the model's precision
        ``optimizer_02-0001.safetensors``  layer 2's part of the optimizer state held by data-parallel rank 1;
                                           ``-0001-0000`` is that of its tensor-parallel rank 0, if it has several
        ``config.yml``                  the keys that were set, in files or on the command line
        ``configs/*.yml``               the configuration files as they were
        ``tokenizer/*``                 the tokenizer's files
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neoxlite.errors import CheckpointError

LATEST = "latest"
MANIFEST = "manifest.json"
FORMAT = "neoxlite-1"
_STEP = re.compile(r"global_step(\d+)")
_ASIDE = re.compile(r"\.(global_step\d+)\.replaced(?:\.tmp)?")  # with .tmp: as older versions named it
_CHUNK = 1 << 22
_COUNTS = (
    "iteration", "consumed_samples", "skipped_steps", "optimizer_step", "world_size", "train_batch_size",
    "padded_vocab_size",
)  # fmt: skip
_SCALE = ("scale", "good_steps", "hysteresis_left")
_KINDS: dict[str, type] = {**dict.fromkeys(_COUNTS, int), "with_optimizer": bool, "schedule": dict}


def step_name(iteration: int) -> str:
    """Return the folder name of an iteration."""
    return f"global_step{iteration}"


def saved_iterations(root: Path) -> list[int]:
    """Return the iterations that ``root`` has folders of, ascending; none if it does not exist."""
    if not root.is_dir():
        return []
    matches = (_STEP.fullmatch(entry.name) for entry in root.iterdir() if entry.is_dir())
    return sorted(int(match.group(1)) for match in matches if match)


def crc32_of(path: Path) -> int:
    """Return the CRC-32 of a file."""
    crc = 0
    chunk = memoryview(bytearray(min(_CHUNK, max(1, path.stat().st_size))))  # one for all: no pages are asked for
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(chunk):
            crc = zlib.crc32(chunk[:count], crc)
    return crc


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json."""

    files: dict[str, dict[str, int]]
    """Name relative to the folder -> {"bytes", "crc32"}."""
    training: dict[str, Any]
    """State of training: iteration, consumed samples, schedule, precision, layout."""

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a checkpoint folder.

        Raises:
            CheckpointError: there is none, it is damaged, or the folder is of another program or version.
        """
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if any(folder.glob("*model_states.pt")):
                raise CheckpointError(
                    f"{folder} is a checkpoint that GPT-NeoX wrote",
                    hint=_conversion(folder),
                    exit_code=2,
                ) from None
            raise CheckpointError(
                f"{folder} is no whole checkpoint: it has no {MANIFEST}", hint=offer(folder)
            ) from None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}", hint=offer(folder)) from None
        try:
            if content["format"] != FORMAT:
                raise CheckpointError(
                    f"{path}: format {content['format']!r} is unknown", hint="read it with the version that wrote it"
                )
            wrong = _wrong(content["files"], content["training"])
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{path} is damaged: {error!r}", hint=offer(folder)) from None
        if wrong:
            raise CheckpointError(f"{path} is damaged: {wrong}", hint=offer(folder))
        return cls(content["files"], content["training"])

    def text(self) -> str:
        """Return the manifest as JSON."""
        return json.dumps({"format": FORMAT, "training": self.training, "files": self.files}, indent=1) + "\n"

    def damage(self, folder: Path, *, share: int = 0, shares: int = 1) -> list[str]:
        """Return what is wrong with the files: all sizes, and the checksums of one share of them."""
        found = []
        for number, (name, expected) in enumerate(sorted(self.files.items())):
            path = folder / name
            try:
                size = path.stat().st_size
                if size != expected["bytes"]:
                    found.append(f"{name} has {size:,} bytes, {expected['bytes']:,} were written")
                elif number % shares == share and crc32_of(path) != expected["crc32"]:
                    found.append(f"{name} has changed since it was written (checksum)")
            except OSError as error:
                found.append(f"{name} cannot be read: {error.strerror}")
        return found


def _conversion(folder: Path) -> str:
    root, iteration = folder.parent, folder.name.removeprefix("global_step")
    new = f"{root}-neoxlite"
    words = ["neoxlite", "convert", "from-neox", str(root), new, "CONFIG.yml", "--iteration", iteration]
    return f"training goes on from it as it is; for everything else convert it: {shlex.join(words)}"


def _wrong(files: Any, training: Any) -> str | None:
    """Return which field of a manifest is missing or has a wrong type, or None."""
    for name, table in (("files", files), ("training", training)):
        if not isinstance(table, dict):
            return f"{name} is no table"
    for name, file in files.items():
        if not isinstance(file, dict) or not all(_is_count(file.get(key)) for key in ("bytes", "crc32")):
            return f"files.{name} has no bytes and crc32"
    for key, kind in _KINDS.items():
        if key not in training:
            return f"training.{key} is missing"
        value = training[key]
        if not (_is_count(value) if kind is int else isinstance(value, kind)):
            return f"training.{key} is {str(value)[:40]!r}"
    if not isinstance(training.get("architecture", {}), dict):
        return "training.architecture is no table"
    scale = training.get("loss_scale")
    if scale and not (isinstance(scale, dict) and all(_is_number(scale.get(key)) for key in _SCALE)):
        return f"training.loss_scale is {str(scale)[:40]!r}"
    losses = training.get("losses", [])
    if not isinstance(losses, list) or not all(isinstance(loss, int | float) for loss in losses):
        return f"training.losses is {str(losses)[:40]!r}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def offer(folder: Path) -> str:
    """Return a hint that names the newest older checkpoint beside ``folder`` whose files have their sizes."""
    match = _STEP.fullmatch(folder.name)
    limit = int(match.group(1)) if match else 0
    for iteration in reversed([number for number in saved_iterations(folder.parent) if number < limit]):
        older = folder.parent / step_name(iteration)
        try:
            manifest = json.loads((older / MANIFEST).read_text(encoding="utf-8"))
            whole = all((older / name).stat().st_size == file["bytes"] for name, file in manifest["files"].items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if whole:
            return f"the one before it looks whole: load iteration {iteration} (--iteration {iteration})"
    return "no older checkpoint beside it is whole; start anew, or load another folder"


def aside_name(name: str) -> str:
    """Return the name of a checkpoint folder while a new one of the same iteration takes its place."""
    return f".{name}.replaced"


def restore_replaced(root: Path) -> list[tuple[Path, Path]]:
    """Give checkpoints their names back that a crash left without, and return (folder, aside) of each one found.

    A save of the same iteration moves the old folder aside, then the new one in its place; a crash between the two
    leaves the old one whole, under `aside_name`. Where it cannot be renamed it stays as it is.
    """
    found = []
    for aside in sorted(root.glob(".global_step*.replaced*")) if root.is_dir() else ():
        match = _ASIDE.fullmatch(aside.name)
        if match is None:
            continue
        folder = root / match.group(1)
        found.append((folder, aside))
        if not folder.exists():
            with contextlib.suppress(OSError):  # read-only for this user, or another rank was first
                aside.rename(folder)
    return found


def find(root: Path, iteration: int | None = None) -> Path | None:
    """Return the checkpoint folder in ``root``: of ``iteration``, else the one that ``latest`` names, else None.

    Raises:
        CheckpointError: that iteration is not there, or ``latest`` names none that is.
    """
    restore_replaced(root)
    if iteration is not None:
        if iteration in saved_iterations(root):
            return root / step_name(iteration)
        present = ", ".join(str(number) for number in saved_iterations(root)) or "none"
        raise CheckpointError(f"{root} has no checkpoint of iteration {iteration}", hint=f"present: {present}")
    try:
        name = (root / LATEST).read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        present_iterations = saved_iterations(root)
        if present_iterations:
            raise CheckpointError(
                f"{root} has checkpoints but no file {LATEST!r} that says which to load",
                hint=f"choose one with --iteration: {', '.join(map(str, present_iterations))}",
            ) from None
        return None
    except OSError as error:
        raise CheckpointError(f"{root / LATEST} cannot be read: {error.strerror}") from None
    folder = root / name
    if _STEP.fullmatch(name) and folder.is_dir():
        return folder
    present = ", ".join(str(number) for number in saved_iterations(root)) or "none"
    raise CheckpointError(
        f"{root / LATEST} names {name[:80]!r}, which is not there",
        hint=f"choose one with --iteration; present: {present}",
    )
