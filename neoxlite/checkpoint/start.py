"""Where a run starts: the checkpoint that ``load`` means, or anew, and what to tell the user. Imports no torch."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from neoxlite.checkpoint.folder import LATEST, find, iteration_of, restore_replaced, saved_iterations
from neoxlite.checkpoint.manifest import MANIFEST, Manifest
from neoxlite.common.paths import is_dir, is_file
from neoxlite.errors import CheckpointError

BEGAN_FROM = "began_from"
"""In a manifest's ``training``: the folder that the run began from, if it is not the one that it saves to."""
_MOST_NEIGHBOURS = 200


def choose(load: Path | None, save: Path | None, iteration: int | None) -> tuple[Path | None, str | None]:
    """Return the checkpoint folder to resume from, None to start anew, and a warning for the user or None.

    Raises:
        CheckpointError: the asked iteration is not there, or starting anew would write over checkpoints in ``save``.
    """
    if load is None and iteration is not None:
        raise CheckpointError(
            f"iteration: {iteration} is to be loaded, but load is not set",
            hint="set load to the folder that holds it, or omit iteration to start at 0",
            exit_code=2,
        )
    folder = find(load, iteration) if load is not None else None
    if load is not None and folder is not None:
        return folder, _trained_again(folder, iteration) if load == save else None
    if load is not None and is_file(load):
        raise CheckpointError(
            f"load: {load} is a file", hint="give the folder that holds latest and global_step...", exit_code=2
        )
    if load is not None and load != save and is_dir(load) and any(load.iterdir()):
        raise CheckpointError(f"load: {load} holds files, but no checkpoint", hint=_way_from(load), exit_code=2)
    if save is not None:
        restore_replaced(save)
    existing = saved_iterations(save) if save is not None else []
    if existing:
        missed = f"load: {load} has no checkpoint" if load is not None else "load is not set"
        raise CheckpointError(
            f"{missed}, but save: {save} has some up to iteration {existing[-1]}; starting at 0 would mix with them",
            hint=f"to continue, set load: {save}; to start at 0, give another folder in save",
            exit_code=2,
        )
    if load is None:
        return None, None
    near = nearest(load) if load != save else None
    meant = f"; did you mean {near} (iteration {saved_iterations(near)[-1]})?" if near is not None else ""
    return None, f"WARNING: {load} has no checkpoint yet; starting at iteration 0{meant}"


def _trained_again(folder: Path, asked: int | None) -> str | None:
    """Return a warning for a run that goes back behind its own checkpoints, as each restart of its job would."""
    root, iteration = folder.parent, iteration_of(folder) or 0
    newest = saved_iterations(root)[-1]
    if newest <= iteration:
        return None
    if asked is None:  # a save was killed before `latest`, or that was changed, by hand or by the disk
        return (
            f"WARNING: {root / LATEST} names iteration {iteration}, and {root} goes up to {newest}: what lies between "
            f"is trained and saved again; --iteration {newest} continues from there"
        )
    return (
        f"WARNING: iteration {iteration} is loaded, as requested; {root} goes up to {newest}, which is trained and "
        "saved again. A job that is started again goes back here each time, until iteration is omitted"
    )


def is_same(load: str | None, save: str | None) -> bool:
    """Tell whether both are given and one folder."""
    return bool(load and save) and os.path.realpath(str(load)) == os.path.realpath(str(save))


def begun_before(load: Path, save: Path, iteration: int) -> Path | None:
    """Return the checkpoint to go on from if this run began from ``load`` before: its own last one, in ``save``.

    A job that is started anew, after its time limit, has the ``load`` of its first start.

    Args:
        iteration: at which the run would begin; -1 with ``finetune``, which begins anew.

    Raises:
        CheckpointError: the checkpoints in ``save`` lie behind it and are another run's, or cannot be read.
    """
    restore_replaced(save)
    existing = saved_iterations(save)
    if not existing or existing[-1] <= iteration:
        return None
    own = find(save)
    if own is not None and Manifest.read(own).training.get(BEGAN_FROM) == os.path.realpath(load):
        return own
    raise CheckpointError(
        f"save: {save} has checkpoints up to iteration {existing[-1]}, which do not record that their run began from "
        f"load: {load}; they would be overwritten",
        hint=f"to continue from them, set load: {save} and omit finetune; to begin from {load}, give another folder "
        "in save",
        exit_code=2,
    )


def _way_from(folder: Path) -> str:
    """Return what to do with a folder of files that are no checkpoint."""
    if is_file(folder / MANIFEST) or any(folder.glob("*model_states.pt")):
        return f"it is one checkpoint itself: set load: {folder.parent} and --iteration"
    if is_file(folder / "config.json"):
        return f"it is a Hugging Face folder: neoxlite convert from-hf {folder} NEW_FOLDER, then load NEW_FOLDER"
    return "give the folder that holds latest and global_step..."


def required(load: str | None, iteration: int | None) -> Path:
    """Return the checkpoint folder to resume from (--require-load).

    Raises:
        CheckpointError: ``load`` is not set, or has no checkpoint.
    """
    if not load:
        raise CheckpointError("--require-load: load is not set", hint="set load to a folder of save", exit_code=2)
    folder = find(Path(load), iteration)
    if folder is None:
        near = nearest(Path(load))
        raise CheckpointError(
            f"--require-load: load: {load} has no checkpoint",
            hint=f"did you mean {near}?" if near is not None else "give the folder of one in load",
            exit_code=2,
        )
    return folder


def nearest(missing: Path) -> Path | None:
    """Return the folder with checkpoints whose name is most like ``missing``, which has none; None if none is like it.

    Looked for are the folders below the last part of its path that exists, three levels deep.
    """
    base = next((parent for parent in missing.parents if parent.is_dir()), None)
    if base is None:
        return None
    wanted = missing.relative_to(base).as_posix()
    names = [path.relative_to(base).as_posix() for path in _with_checkpoints(base, 3)]
    found = difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    return base / found[0] if found else None


def _with_checkpoints(base: Path, depth: int) -> Iterator[Path]:
    with contextlib.suppress(OSError, CheckpointError):  # a folder that may not be read
        for path in sorted(base.iterdir())[:_MOST_NEIGHBOURS]:
            if depth == 0 or not path.is_dir() or path.name.startswith(("global_step", ".")):
                continue
            if saved_iterations(path):
                yield path
            else:
                yield from _with_checkpoints(path, depth - 1)
