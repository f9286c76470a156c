"""Errors of the operating system as two lines for a user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from neoxlite.errors import DataError, NeoxliteError


@contextlib.contextmanager
def writing(what: str | Path) -> Iterator[None]:
    """Turn an OSError of the block into a NeoxliteError that names ``what`` was being written."""
    try:
        yield
    except OSError as error:
        raise NeoxliteError(
            f"{what} cannot be written: {error.strerror or error}",
            hint="choose a folder that can be written and has room; nothing of it was kept",
        ) from error


@contextlib.contextmanager
def reading(what: str | Path) -> Iterator[None]:
    """Turn an OSError of the block into a DataError that names ``what`` was being read."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{what} cannot be read: {error.strerror or error}", hint="give files that this account can read"
        ) from error
