"""What a checkpoint folder says of itself, and whether that is still so. Imports no torch.

``manifest.json`` holds size and CRC-32 of every other file, the state of training, and a CRC-32 of what it says itself.
"""

from __future__ import annotations

import json
import shlex
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neoxlite.checkpoint.folder import iteration_of, saved_iterations, step_name
from neoxlite.errors import CheckpointError

MANIFEST = "manifest.json"
FORMAT = "neoxlite-1"
_CHUNK = 1 << 22
_COUNTS = (
    "iteration", "consumed_samples", "skipped_steps", "optimizer_step", "world_size", "train_batch_size",
    "padded_vocab_size",
)  # fmt: skip
_SCALE = ("scale", "good_steps", "hysteresis_left")
_KINDS: dict[str, type] = {**dict.fromkeys(_COUNTS, int), "with_optimizer": bool, "schedule": dict}


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
            CheckpointError: there is none, it is damaged, or the folder is of another program, version or iteration.
        """
        path = folder / MANIFEST
        try:
            return cls._of(json.loads(path.read_text(encoding="utf-8")), folder)
        except FileNotFoundError:
            if any(folder.glob("*model_states.pt")):
                raise CheckpointError(
                    f"{folder} is a checkpoint that GPT-NeoX wrote", hint=_conversion(folder), exit_code=2
                ) from None
            raise CheckpointError(
                f"{folder} is not a complete checkpoint: it has no {MANIFEST}", hint=offer(folder)
            ) from None
        except _OtherFormatError as error:
            hint = f"read it with the version that wrote it; if it is none of another version, {offer(folder)}"
            raise CheckpointError(f"{path}: {error}", hint=hint, exit_code=2) from None
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}", hint=offer(folder)) from None
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} is damaged: {error}", hint=offer(folder)) from None

    @classmethod
    def _of(cls, content: Any, folder: Path) -> Manifest:
        """Return the manifest of ``folder`` out of parsed JSON. Raises ValueError if that is damaged."""
        if isinstance(content, dict) and content.get("format", FORMAT) != FORMAT:  # it may have other keys
            raise _OtherFormatError(f"format {content['format']!r} is unknown")
        if not isinstance(content, dict) or content.keys() - {"crc32"} != {"format", "files", "training"}:
            raise ValueError("it has other keys than format, crc32, training and files")
        wrong = _wrong(content["files"], content["training"])
        if wrong:
            raise ValueError(wrong)
        found = cls(content["files"], content["training"])
        # None: written before manifests had one.
        if content.get("crc32") not in (None, found._crc32()):
            raise ValueError("it has changed since it was written (checksum)")
        named, iteration = iteration_of(folder), found.training["iteration"]
        if named not in (None, iteration):
            raise ValueError(f"it is that of iteration {iteration}, and the folder is named for {named}")
        return found

    def text(self) -> str:
        """Return the manifest as JSON."""
        content = {"format": FORMAT, "crc32": self._crc32(), "training": self.training, "files": self.files}
        return json.dumps(content, indent=1) + "\n"

    def _crc32(self) -> int:
        """Return the CRC-32 of what is said, however it is laid out."""
        said = json.dumps([self.training, self.files], sort_keys=True, separators=(",", ":"))
        return zlib.crc32(said.encode())

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


class _OtherFormatError(ValueError):
    """Written by another version."""


def _conversion(folder: Path) -> str:
    root, iteration = folder.parent, folder.name.removeprefix("global_step")
    new = f"{root}-neoxlite"
    words = ["neoxlite", "convert", "from-neox", str(root), new, "CONFIG.yml", "--iteration", iteration]
    return f"training continues from it as it is; for everything else convert it: {shlex.join(words)}"


def _wrong(files: Any, training: Any) -> str | None:
    """Return which field of a manifest is missing or has a wrong type, or None."""
    for name, table in (("files", files), ("training", training)):
        if not isinstance(table, dict):
            return f"{name} is not a table"
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
        return "training.architecture is not a table"
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
    limit = iteration_of(folder) or 0
    for iteration in reversed([number for number in saved_iterations(folder.parent) if number < limit]):
        if _looks_whole(folder.parent / step_name(iteration)):
            return f"the one before it looks complete: load iteration {iteration} (--iteration {iteration})"
    return "no older checkpoint beside it is complete; start at 0 in another folder, or load another folder"


def _looks_whole(folder: Path) -> bool:
    try:
        manifest = Manifest._of(json.loads((folder / MANIFEST).read_text(encoding="utf-8")), folder)
        return all((folder / name).stat().st_size == file["bytes"] for name, file in manifest.files.items())
    except (OSError, ValueError, RecursionError):
        return False
