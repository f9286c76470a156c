"""The shipped rules as they were read, kept between runs: reading YAML takes longer than reading the end of a log.

The cache holds data that is checked like the rules themselves, and costs only time where it cannot be had: a full
quota, a home that is read-only, damage.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable
from pathlib import Path

from hpcjob.home import cache_folder

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
    """Return what is kept in the folder of caches, None if there is nothing."""
    folder = cache_folder()
    try:
        return None if folder is None else (folder / key).read_bytes()
    except OSError:
        return None


def write(key: str, data: bytes) -> None:
    """Keep it, at once, since another process may read it; what other versions kept goes."""
    import tempfile

    folder = cache_folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in folder.glob(f"{_PREFIX}*"):
            old.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            written = Path(beside) / key
            written.write_bytes(data)
            written.replace(folder / key)
