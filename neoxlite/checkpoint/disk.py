"""What a failure of the file system means to the user. Imports no torch."""

from __future__ import annotations

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def told(error: OSError) -> str:
    """Return what is wrong, with the file where it is known."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def remedy(error: OSError) -> str:
    """Return what to do about it."""
    if error.errno in _FULL:
        return "make room or raise the quota"
    if error.errno in _FORBIDDEN:
        return "check the rights of the folder, and whether it is mounted read-only"
    if error.errno in _GONE:
        return "the folder was moved or removed, or its file system went away: give its new name"
    return "check the file system"
