"""Compressed files as streams of what they hold."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable
from typing import IO, Any, Final

from neoxlite.tokenizers.base import needed_library

_ZSTD_MODULES: Final = ("compression.zstd", "backports.zstd")


def damage_errors() -> tuple[type[Exception], ...]:
    """Return what the readers of compressed data raise when it is damaged or cut off."""
    zstd = [module.ZstdError for module in map(sys.modules.get, _ZSTD_MODULES) if module is not None]
    return (OSError, EOFError, zlib.error, lzma.LZMAError, *zstd)


def _zstd_module() -> Any:
    """Return the module of Zstandard: the standard library's from Python 3.14 on, else its backport."""
    return needed_library(_ZSTD_MODULES[sys.version_info < (3, 14)], "a .zst file", "data")


def _open_zstd(raw: IO[bytes]) -> IO[bytes]:
    stream: IO[bytes] = _zstd_module().open(raw, "rb")
    return stream


_OPENERS: Final[dict[str, Callable[[IO[bytes]], Any]]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".zst": _open_zstd,
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}


def split_compression(name: str) -> tuple[str, str]:
    """Return a file name without the suffix of its compression, and that suffix ("" for none)."""
    for suffix in _OPENERS:
        if name.endswith(suffix):
            return name.removesuffix(suffix), suffix
    return (f"{name.removesuffix('.tgz')}.tar", ".gz") if name.endswith(".tgz") else (name, "")


def decompressed(raw: IO[bytes], suffix: str) -> IO[bytes]:
    """Return a stream of what ``raw`` holds. Raises DataError if the library for it is missing."""
    return io.BufferedReader(_OPENERS[suffix](raw), 1 << 20) if suffix else raw


def damage(error: BaseException) -> str:
    """Say to a user what is wrong with a file, from an error of `damage_errors`."""
    if isinstance(error, EOFError):
        return "the compressed file is truncated"
    if isinstance(error, OSError) and error.errno is not None:
        return error.strerror or str(error)
    return f"the compressed file is damaged ({error})"
