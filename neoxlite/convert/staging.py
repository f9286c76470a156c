"""A folder that appears whole or not at all, and what is said when there is no room for it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from neoxlite.checkpoint.disk import remedy
from neoxlite.checkpoint.owner import Owner
from neoxlite.common.files import sync_folder
from neoxlite.common.paths import exists, is_dir, is_file
from neoxlite.convert.sizes import size_texts
from neoxlite.errors import CheckpointError


def require_room(place: Path, needed_bytes: int) -> None:
    """Raise CheckpointError if the file system of ``place`` has less room than ``needed_bytes``."""
    existing = next(path for path in (place, *place.absolute().parents) if exists(path))
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        needed_text, free_text = size_texts(needed_bytes, free)
        raise CheckpointError(
            f"{place}: {needed_text} are needed, {free_text} are free",
            hint="make room, or write to another file system",
        )


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn a failure of the file system inside the block into one line about ``place``."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{place} could not be written: {error.strerror or error}",
            hint=f"{remedy(error)}, and run it again: nothing was left behind",
        ) from None


def refuse_existing(target: Path) -> None:
    """Raise CheckpointError if there is something at ``target`` that a new folder would take the place of."""
    if is_file(target) or (is_dir(target) and any(target.iterdir())):
        raise CheckpointError(
            f"{target} exists and is not empty", hint="give a new folder, or remove this one", exit_code=2
        )


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``target``, which becomes ``target`` when the block ends without an error.

    The files in it must be on the disk by then (`write_file`, `neoxlite.convert.tensor_file.write_tensors`). What dead
    processes left of earlier tries is removed.

    Raises:
        CheckpointError: ``target`` is there already, or cannot be written.
    """
    refuse_existing(target)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        temporary = target.parent / f".{target.name}.{Owner.this()}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
            sync_folder(temporary)
            temporary.rename(target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _remove_leftovers(target: Path) -> None:
    head = f".{target.name}."
    for path in target.parent.iterdir():
        if not (path.name.startswith(head) and path.name.endswith(".tmp")):
            continue
        owner = Owner.parse(path.name.removeprefix(head).removesuffix(".tmp"))
        if owner is not None and owner.is_alive is False:
            shutil.rmtree(path, ignore_errors=True)


def write_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` and to the disk. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
