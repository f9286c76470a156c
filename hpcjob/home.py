"""Paths that begin with ``~``, and the folder of what is kept only to be quick."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: Path | str) -> Path:
    """Return ``path`` with a home folder for its ``~`` or ``~user``; as it is where nobody knows that home."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser() raises RuntimeError then


def cache_folder() -> Path | None:
    """Return ``$XDG_CACHE_HOME/hpcjob`` (by default ``~/.cache/hpcjob``); None where nobody knows a home folder."""
    folder = expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "hpcjob"
    return folder if folder.is_absolute() else None
