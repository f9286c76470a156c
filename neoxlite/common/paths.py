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


def _is(test: Callable[[], bool]) -> bool:
    """``pathlib`` takes a name with a zero byte for none, but raises for one of more than 255 bytes."""
    try:
        return test()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise
