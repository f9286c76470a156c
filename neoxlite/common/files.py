"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path`` for writing; rename it to ``path`` when the block ends without an error.

    The data reach the disk before the rename, so a reader sees the old file or the whole new one, also after a crash.

    Raises:
        OSError: the folder cannot be written or the disk is full; ``path`` is then unchanged and nothing is left.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)  # noqa: PTH101 - the temporary name is a str and stays one
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def write_whole(path: Path, data: str | bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` (text as UTF-8) to ``path``, whole or not at all. Raises OSError as `replacing` does."""
    with replacing(path, mode=mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
