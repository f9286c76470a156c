"""Regular files alone: a pipe would block, a device such as /dev/zero has no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path | str, limit_bytes: int | None = None) -> bytes:
    """Return the bytes of the file at ``path``; of a larger one the first ``limit_bytes`` and one more.

    Raises:
        OSError: it cannot be read, or is no regular file; ``filename`` is ``path``.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a zero byte is in its name", str(path))
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(code, "Is a directory" if code == errno.EISDIR else "no regular file", str(path))
        return file.read(-1 if limit_bytes is None else limit_bytes + 1)


def size_of(path: Path) -> int:
    """Return the bytes of a regular file; 0 of what is none, or is gone: files of a job come and go while it runs."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
