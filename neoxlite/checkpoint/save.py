"""Writing a checkpoint: into a temporary folder, to the disk, then into place; ``latest`` comes last.

Every rank writes a share; rank 0 moves the folder into place when all have. A crash at any moment leaves the
checkpoints before it and at most a hidden temporary folder, which the next save removes. One run saves to a folder at a
time (`neoxlite.checkpoint.lock`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist

from neoxlite.checkpoint.disk import remedy, told
from neoxlite.checkpoint.folder import (
    LATEST,
    aside_name,
    restore_replaced,
    saved_iterations,
    step_name,
)
from neoxlite.checkpoint.lock import refuse_lost
from neoxlite.checkpoint.manifest import MANIFEST, Manifest
from neoxlite.checkpoint.owner import Owner
from neoxlite.checkpoint.share import TensorFile, share_of
from neoxlite.checkpoint.tensor_file import write_parts, write_tensors
from neoxlite.common.files import replacing, sync_folder, write_whole
from neoxlite.errors import CheckpointError
from neoxlite.parallel.topology import Topology

Sizes = dict[str, dict[str, int]]
"""File name -> {"bytes", "crc32"}."""


@dataclass(frozen=True)
class Contents:
    """What goes into a checkpoint besides the engine's tensors."""

    training: dict[str, Any]
    """State of training for the manifest; must hold ``iteration``."""
    texts: dict[str, bytes] = field(default_factory=dict)
    """Small files by their name in the folder."""
    with_optimizer: bool = True


class Together:
    """Work that all ranks do at a time, with one result for all of them.

    Args:
        group: processes to speak with; by default all, by the default group.
    """

    def __init__(self, topology: Topology, group: dist.ProcessGroup | None = None):
        self.rank = topology.rank
        self._size = topology.grid.world_size
        self._group = group

    def __call__(self, work: Callable[[], Any]) -> list[Any]:
        """Do ``work`` and return the results of all ranks; if it fails anywhere, raise the same error everywhere."""
        result: Any = None
        problem: tuple[str, str | None] | None = None
        try:
            result = work()
        except OSError as error:
            problem = f"rank {self.rank}: {told(error)}", remedy(error)
        except CheckpointError as error:
            problem = f"rank {self.rank}: {error.message}", error.hint
        gathered: list[Any] = [(result, problem)] * self._size
        if self._size > 1:
            dist.all_gather_object(gathered, (result, problem), group=self._group)
        problems = [problem for _, problem in gathered if problem]
        if problems:
            what, hint = problems[0]
            raise CheckpointError(
                f"the checkpoint could not be written: {what}",
                hint="; ".join([*([hint] if hint else []), "the checkpoints before it are untouched"]),
            )
        return [result for result, _ in gathered]


def save(
    root: Path,
    engine: Any,
    contents: Contents,
    *,
    keep_last: int | None = None,
    on_disk: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Write a checkpoint of ``engine`` under ``root`` and return its folder; every rank calls this.

    Args:
        on_disk: called with the folder when it is on the disk, before older ones are removed.

    Raises:
        CheckpointError: on every rank, if any of them cannot write. What was there before is untouched.
    """
    files = share_of(engine, with_optimizer=contents.with_optimizer)
    return write(root, Together(engine.topology), files, contents, keep_last=keep_last, on_disk=on_disk)


def write(
    root: Path,
    together: Together,
    files: Iterable[TensorFile],
    contents: Contents,
    *,
    keep_last: int | None = None,
    on_disk: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Write a checkpoint of which this rank has ``files``; as `save`, wherever the tensors come from."""
    iteration = int(contents.training["iteration"])
    rank = together.rank
    temporary = together(lambda: begin_folder(root, iteration) if rank == 0 else None)[0]
    folder = root / step_name(iteration)
    try:
        shares = together(lambda: _write_share(temporary, files, contents, rank))
        sizes = {name: size for share in shares for name, size in share.items()}
        together(lambda: move_into_place(temporary, folder, sizes, contents.training) if rank == 0 else None)
    except CheckpointError:
        # All ranks have ended their part. On a full disk the half would keep it full.
        if rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    on_disk(folder)
    if rank == 0 and keep_last:
        remove_old(root, keep_last, iteration)
    return folder


def begin_folder(root: Path, iteration: int) -> Path:
    """Clear away what dead runs left, and return a new temporary folder that names this process."""
    root.mkdir(parents=True, exist_ok=True)
    refuse_lost(root)
    for folder, aside in restore_replaced(root):
        if folder.is_dir() and aside.is_dir():
            _discard(aside)
    for leftover in root.glob(".global_step*.tmp"):
        # .global_step5.OWNER.tmp; the lock of the folder says that no other host's owner is alive.
        owner = Owner.parse(leftover.name.removesuffix(".tmp").partition(".global_step")[2].partition(".")[2])
        if owner is None or owner == Owner.this() or not owner.is_alive:
            # What cannot be removed now, such as a file that a reader has open on NFS, goes with a later save.
            shutil.rmtree(leftover, ignore_errors=True)
    for leftover in root.glob(f".{LATEST}.*.tmp"):
        with contextlib.suppress(OSError):
            leftover.unlink()
    temporary = root / f".{step_name(iteration)}.{Owner.this()}.tmp"
    temporary.mkdir(exist_ok=True)
    return temporary


def _write_share(folder: Path, files: Iterable[TensorFile], contents: Contents, rank: int) -> Sizes:
    """Write this rank's files, each to the disk before the next, and return their sizes and checksums."""
    if rank > 0 and not folder.is_dir():  # rank 0 has made it, and finds out which file it cannot write if it is gone
        raise CheckpointError(f"{folder.parent} is not the same folder on all nodes")
    # File by file: where the tensors come from other ranks, no more than one file's are in memory.
    remaining = iter(files)
    written = {}
    try:
        for file in remaining:
            written[file.name] = write_tensors(folder / file.name, file.tensors)
    except OSError:
        # To the end all the same: the other ranks wait for this one's part of their files.
        for _ in remaining:
            pass
        raise
    if rank == 0:
        for name, data in contents.texts.items():
            path = folder / name
            for parent in list(Path(name).parents)[-2::-1]:  # not the folder itself, if that was moved away
                (folder / parent).mkdir(exist_ok=True)
            written[name] = write_parts(path, [data])
    return written


def move_into_place(temporary: Path, folder: Path, files: Sizes, training: dict[str, Any]) -> None:
    """Write the manifest, give the folder its name, and name it in ``latest``.

    Raises:
        CheckpointError: a file is not there.
        OSError: the disk is full, or the folder cannot be written.
    """
    missing = [name for name in files if not (temporary / name).exists()]
    if missing:
        raise CheckpointError(f"{temporary / missing[0]} was written by another node but is not visible on this one")
    write_whole(temporary / MANIFEST, Manifest(files, training).text())
    sync_folder(temporary)
    root = folder.parent
    refuse_lost(root)
    aside = root / aside_name(folder.name)
    with replacing(root / LATEST) as latest:
        # On the disk before any name changes: then nothing that follows needs room.
        latest.write(folder.name.encode())
        latest.flush()
        os.fsync(latest.fileno())
        if folder.exists():
            # The same iteration again, after a resume from an older one. Between the two renames the old one is the
            # checkpoint still: `restore_replaced` gives it its name back.
            folder.rename(aside)
            _move(temporary, folder, aside)
        else:
            temporary.rename(folder)
        sync_folder(root)
    sync_folder(root)  # before an older one, which `latest` named until now, is removed
    if aside.exists():
        _discard(aside)


def _move(temporary: Path, folder: Path, aside: Path) -> None:
    """Rename ``temporary`` to ``folder``, also if a reader has just given the old one its name back; or undo all."""
    try:
        if folder.exists():
            folder.rename(aside)
        temporary.rename(folder)
    except OSError:
        with contextlib.suppress(OSError):
            aside.rename(folder)
        raise


def remove_old(root: Path, keep: int, newest: int) -> None:
    """Keep the ``keep`` last checkpoints up to ``newest`` and remove those before them; later ones are left alone."""
    old = [iteration for iteration in saved_iterations(root) if iteration <= newest][:-keep]
    for iteration in old:
        _discard(root / step_name(iteration))


def _discard(folder: Path) -> None:
    """Remove a checkpoint; from the first moment it has no checkpoint's name, so that a crash leaves no half of one."""
    # The next save clears away what is left of it, as of a save that died.
    doomed = folder.with_name(f".{folder.name.lstrip('.').partition('.')[0]}.{secrets.token_hex(4)}.tmp")
    with contextlib.suppress(OSError):  # it is no part of the save that clears away
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
