"""Files that a command writes where the user says."""

from __future__ import annotations

from pathlib import Path

from hpcjob.errors import InputError
from neoxlite.common.paths import exists, is_dir, is_file, is_link
from neoxlite.common.printable import tell


def write_new(path: Path, text: str, force: bool, *, option: str = "--output", mode: int = 0o755) -> None:
    """Write a file, and say so on stderr. What is no file, such as /dev/stdout or a pipe, is written into.

    Raises:
        InputError: it exists and ``force`` is not set, or it cannot be written; the message names ``option``.
    """
    from neoxlite.common.files import write_whole

    if is_dir(path):
        raise InputError(f"{option}: {path} is a folder", hint="give the name of a file in it")
    is_special = exists(path) and not is_file(path)
    if (exists(path) or is_link(path)) and not force and not is_special:
        raise InputError(f"{option}: {path} exists", hint="give another name, or --force to replace it")
    try:
        if is_special:  # to rename a file over a device would remove the device
            path.write_text(text, encoding="utf-8")
            return
        write_whole(path, text, mode=mode)
    except OSError as error:
        raise InputError(
            f"{option}: {path}: {error.strerror}", hint="give a file in a folder that you may write, with free space"
        ) from None
    tell(f"wrote {path}")
