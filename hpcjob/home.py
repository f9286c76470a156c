"""Paths that begin with ``~``."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: Path | str) -> Path:
    """Return ``path`` with a home folder for its ``~`` or ``~user``; as it is where nobody knows that home."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser() raises RuntimeError then
