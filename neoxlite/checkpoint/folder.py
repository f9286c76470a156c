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
import os
import re
import stat
from pathlib import Path

from neoxlite.common.paths import is_dir
from neoxlite.errors import CheckpointError

LATEST = "latest"
_LONGEST_NAME = 255  # bytes of a file's name on Linux
_STEP = re.compile(r"global_step([0-9]+)")
_ASIDE = re.compile(r"\.(global_step\d+)\.replaced(?:\.tmp)?")  # with .tmp: as older versions named it


def step_name(iteration: int) -> str:
    """Return the folder name of an iteration."""
    return f"global_step{iteration}"


def iteration_of(folder: Path) -> int | None:
    """Return the iteration that a folder is named for; None for any other name."""
    match = _STEP.fullmatch(folder.name)
    return int(match.group(1)) if match else None


def saved_iterations(root: Path) -> list[int]:
    """Return the iterations that ``root`` has folders of, ascending; none if it does not exist.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        found = [iteration_of(entry) for entry in root.iterdir() if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{root} cannot be read: {error.strerror}", hint="check its rights") from None
    return sorted(iteration for iteration in found if iteration is not None)


def read_latest(root: Path) -> str | None:
    """Return the name that ``latest`` in ``root`` says, None if there is no such file.

    Raises:
        OSError: it is not a file, or cannot be read.
    """
    try:
        # Without waiting, and no further than a name goes: it may be a pipe, or a file of any size.
        handle = os.open(root / LATEST, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is not a file")
        return file.read(_LONGEST_NAME + 1).decode("utf-8", errors="replace").strip()


def aside_name(name: str) -> str:
    """Return the name of a checkpoint folder while a new one of the same iteration takes its place."""
    return f".{name}.replaced"


def restore_replaced(root: Path) -> list[tuple[Path, Path]]:
    """Give checkpoints their names back that a crash left without, and return (folder, aside) of each one found.

    A save of the same iteration moves the old folder aside, then the new one in its place; a crash between the two
    leaves the old one whole, under `aside_name`. Where it cannot be renamed it stays as it is.
    """
    found = []
    for aside in sorted(root.glob(".global_step*.replaced*")) if is_dir(root) else ():
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
    present = saved_iterations(root)
    listed = ", ".join(map(str, present)) or "none"
    if iteration is not None:
        if iteration in present:
            return root / step_name(iteration)
        raise CheckpointError(
            f"{root} has no checkpoint of iteration {iteration}", hint=f"present: {listed}", exit_code=2
        )
    hint = f"choose one with --iteration; present: {listed}"
    try:
        name = read_latest(root)
    except OSError as error:
        raise CheckpointError(f"{root / LATEST} cannot be read: {error.strerror}", hint=hint) from None
    if name is None:
        if present:
            raise CheckpointError(
                f"{root} has checkpoints but no file {LATEST!r} that says which to load", hint=hint, exit_code=2
            )
        return None
    folder = root / name
    if _STEP.fullmatch(name) and folder.is_dir():
        return folder
    raise CheckpointError(f"{root / LATEST} names {name[:80]!r}, which is not there", hint=hint, exit_code=2)
