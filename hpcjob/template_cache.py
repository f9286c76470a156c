"""Compiled templates, kept between runs: compiling them takes ten times as long as rendering."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from hpcjob import __version__
from hpcjob.home import cache_folder

_DIGEST_BYTES = hashlib.sha256().digest_size


class _FileCache(jinja2.BytecodeCache):
    """A cache that costs only time where it cannot be read or written: a full quota, a home that is read-only, damage.

    Bytecode is run as it is read, and damaged bytecode can crash the interpreter: each entry begins with the SHA-256 of
    the rest. One that is damaged is compiled and written anew.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket from its file; leave it empty where that is missing or damaged."""
        try:
            entry = (self._folder / bucket.key).read_bytes()
        except OSError:
            return
        digest, bytecode = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
        if hashlib.sha256(bytecode).digest() == digest:
            bucket.bytecode_from_string(bytecode)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the bucket to its file, at once: another process may read it."""
        bytecode = bucket.bytecode_to_string()
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=self._folder) as folder:
            written = Path(folder) / bucket.key
            written.write_bytes(hashlib.sha256(bytecode).digest() + bytecode)
            written.replace(self._folder / bucket.key)


def template_cache() -> jinja2.BytecodeCache | None:
    """Return the cache in the folder of caches, or None where it cannot be had safely.

    What is cached is run, so the folder must be the user's own and writable by nobody else. An entry holds a digest of
    its template's text, and the folder's name the versions that wrote it.
    """
    above = cache_folder()
    if above is None:
        return None
    folder = above / f"templates-{__version__}-{jinja2.__version__}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    return _FileCache(folder)
