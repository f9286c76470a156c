"""Compiled templates, kept between runs: compiling them takes ten times as long as rendering."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from hpcjob import __version__


class _QuietCache(jinja2.FileSystemBytecodeCache):
    """A cache that costs only time where it cannot be read or written: a full quota, a home that is read-only."""

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def template_cache() -> jinja2.BytecodeCache | None:
    """Return the cache in ``$XDG_CACHE_HOME/hpcjob`` (by default ``~/.cache``), or None where it cannot be had safely.

    What is cached is run, so the folder must be the user's own and writable by nobody else. An entry holds a digest of
    its template's text, and the folder's name the versions that wrote it.
    """
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser() / "hpcjob" / f"templates-{__version__}-{jinja2.__version__}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except (OSError, RuntimeError):
        return None
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    return _QuietCache(str(folder))
