"""The shipped rules as they were read, kept between runs: reading YAML takes longer than reading the end of a log.

The cache holds data that is checked like the rules themselves, and costs only time where it cannot be had: a full
quota, a home that is read-only, damage.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from hpcjob.home import expanded

_PREFIX = "log-rules-"


def key_of(contents: Iterable[bytes]) -> str:
    """Return the name under which rules from files with these contents are kept."""
    from hpcjob import __version__

    check = size = 0  # not hashlib: loading OpenSSL takes as long as all of this
    for content in contents:
        check = zlib.crc32(content, check)
        size += len(content)
    return f"{_PREFIX}{__version__}-{size}-{check:08x}"


def read(key: str) -> bytes | None:
    """Return what is kept in ``$XDG_CACHE_HOME/hpcjob`` (by default ``~/.cache``), None if there is nothing."""
    try:
        return (_folder() / key).read_bytes()
    except (OSError, RuntimeError):
        return None


def write(key: str, data: bytes) -> None:
    """Keep it, at once, since another process may read it; what other versions kept goes."""
    import tempfile

    with contextlib.suppress(OSError, RuntimeError):
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in folder.glob(f"{_PREFIX}*"):
            old.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            written = Path(beside) / key
            written.write_bytes(data)
            written.replace(folder / key)


def _folder() -> Path:
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "hpcjob"
