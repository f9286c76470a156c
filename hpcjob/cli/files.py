"""Files that a command writes where the user says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hpcjob.errors import InputError
from neoxlite.common.paths import exists, is_dir, is_file, is_link
from neoxlite.common.printable import tell

_OF_DESCRIPTORS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


def write_new(path: Path, text: str, force: bool, *, option: str = "--output", mode: int = 0o755) -> None:
    """Write a file as `written` does, and say so on stderr.

    Raises:
        InputError: it exists and ``force`` is not set, or it cannot be written; the message names ``option``.
    """
    is_special = _is_special(path)
    if (exists(path) or is_link(path)) and not force and not is_special and not is_dir(path):
        raise InputError(f"{option}: {path} exists", hint="give another name, or --force to replace it")
    with written(path, option=option, mode=mode) as file:
        file.write(text.encode())
    if not is_special:
        tell(f"wrote {path}")


@contextmanager
def written(path: Path, *, option: str = "--output", mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Open a file for writing, which is there whole or not at all, and then in the place of one that was there.

    What is no file, such as /dev/stdout or a pipe, is written into: to rename a file over a device would remove the
    device.

    Args:
        mode: of the file, as far as the user's umask lets it.

    Raises:
        InputError: it cannot be written; the message names ``option``.
    """
    from neoxlite.common.files import replacing

    if is_dir(path):
        raise InputError(f"{option}: {path} is a folder", hint="give the name of a file in it")
    try:
        with path.open("wb") if _is_special(path) else replacing(path, mode=mode & ~_umask()) as file:
            yield file
    except OSError as error:
        raise InputError(
            f"{option}: {path}: {error.strerror}", hint="give a file in a folder that you may write, with free space"
        ) from None


def _is_special(path: Path) -> bool:
    """Whether it is a device or a pipe; /dev/stdout is one too where it leads to a file."""
    return (exists(path) and not is_file(path) and not is_dir(path)) or path.absolute().parent in _OF_DESCRIPTORS


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask
