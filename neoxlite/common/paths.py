"""Whether there is a file of a name that somebody wrote: a name that no file can have is a name of none."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

Test = Callable[[Path], bool]


def exists(path: Path) -> bool:
    """Whether there is something at ``path``. Raises OSError where that cannot be seen."""
    return _is(path.exists)


def is_file(path: Path) -> bool:
    """Whether there is a regular file at ``path``. Raises OSError where that cannot be seen."""
    return _is(path.is_file)


def is_dir(path: Path) -> bool:
    """Whether there is a folder at ``path``. Raises OSError where that cannot be seen."""
    return _is(path.is_dir)


def is_link(path: Path) -> bool:
    """Whether there is a symbolic link at ``path``. Raises OSError where that cannot be seen."""
    return _is(path.is_symlink)


def what_else(path: Path) -> str | None:
    """Say what is at ``path`` that is neither a file nor a folder; None if that is so, or nothing is there."""
    if is_file(path) or is_dir(path):
        return None
    if exists(path):
        return "a pipe, a socket or a device"
    return "a link that leads nowhere" if is_link(path) else None


def _is(test: Callable[[], bool]) -> bool:
    """``pathlib`` takes a name with a zero byte for none, but raises for one of more than 255 bytes."""
    try:
        return test()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise
