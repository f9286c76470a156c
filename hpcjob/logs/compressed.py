"""Log files as streams of bytes, by what they begin with: gzip, bzip2, xz, Zstandard, UTF-16 (PowerShell's)."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from hpcjob.errors import InputError

_ZSTD = ("compression.zstd", "backports.zstd")  # the standard library's from Python 3.14 on, and its backport
_MAGIC: dict[bytes, str] = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_MAGIC_BYTES = 6
_BUFFER_BYTES = 256 * 1024


def compression(path: Path) -> str | None:
    """Return how a regular file is compressed or encoded, by its first bytes; None if it is not, or cannot be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return _kind(file.read(_MAGIC_BYTES))
    except OSError:
        return None


def _kind(head: bytes) -> str | None:
    kind = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    head = head[:_MAGIC_BYTES]
    if kind is None and len(head) == _MAGIC_BYTES:  # UTF-16 without its mark: ASCII with NULs between
        for nuls, text, name in ((head[1::2], head[::2], "UTF-16LE"), (head[::2], head[1::2], "UTF-16BE")):
            if not any(nuls) and text.isascii() and text.decode().isprintable():
                return name
    return kind


class Stream(Protocol):
    """What is needed of a stream to read it from its start to its end."""

    def read(self, size: int = -1, /) -> bytes | None:
        """Return up to ``size`` bytes, nothing at the end."""

    def close(self) -> None:
        """Let go of it."""


def open_log(path: Path) -> Stream:
    """Open a log for reading from its start to its end; it may be a pipe.

    Raises:
        InputError: it cannot be read, or what decompresses it is not installed.
    """
    try:
        file = path.open("rb", buffering=0)
        raw = io.BufferedReader(file, _BUFFER_BYTES)
        kind = _kind(raw.peek(_MAGIC_BYTES))
        if kind is None and raw.seekable():
            raw.detach().seek(0)
            return file
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}", hint="check its permissions, or name another file"
        ) from error
    return raw if kind is None else _Damaged(path, raw, _OPENERS[kind](raw))


def _open_zstd(raw: IO[bytes]) -> Any:
    for name in _ZSTD:
        if (module := _imported(name)) is not None:
            return module.open(raw, "rb")
    raise InputError(
        f"{raw.name}: nothing here reads Zstandard", hint="install backports.zstd, or decompress it: zstd -d FILE"
    )


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _open_gzip(raw: IO[bytes]) -> Any:
    import gzip

    return gzip.GzipFile(fileobj=raw)


def _open_bzip2(raw: IO[bytes]) -> Any:
    import bz2

    return bz2.BZ2File(raw)


def _open_xz(raw: IO[bytes]) -> Any:
    import lzma

    return lzma.LZMAFile(raw)


class _Text:
    """UTF-16 as UTF-8."""

    def __init__(self, raw: IO[bytes], encoding: str) -> None:
        import codecs

        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")

    def read1(self, size: int = -1, /) -> bytes:
        while data := self._raw.read(_BUFFER_BYTES if size < 0 else size):
            if text := self._decoder.decode(data):
                return text.encode("utf-8", errors="replace")
        return self._decoder.decode(b"", final=True).encode("utf-8", errors="replace")

    def close(self) -> None:
        """The file is closed by who opened it."""


# Imported on use: most logs are not compressed.
_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    "gzip": _open_gzip,
    "bzip2": _open_bzip2,
    "xz": _open_xz,
    "Zstandard": _open_zstd,
    **{name: partial(_Text, encoding=name) for name in ("UTF-16", "UTF-16LE", "UTF-16BE")},
}
_DAMAGE_NAMES = ("error", "LZMAError", "ZstdError")  # zlib's, lzma's, and that of both modules of Zstandard


class _Damaged(io.RawIOBase):
    """A stream that ends where the compressed data is damaged or cut: what was readable of a log is worth reading."""

    def __init__(self, path: Path, raw: IO[bytes], stream: Any) -> None:
        self._path = path
        self._raw = raw
        self._stream = stream
        self._over = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if self._over:
            return b""
        try:
            # `read1` gives what one look made; `read` goes on, and loses that if the data ends there.
            data: bytes = self._stream.read1(size)
        except Exception as error:
            if isinstance(error, OSError | EOFError) or type(error).__name__ in _DAMAGE_NAMES:
                return self._cut(error)
            raise
        return data

    def _cut(self, error: Exception) -> bytes:
        self._over = True
        text = " ".join(str(error).split())
        return f"\nhpcjob: {self._path.name}: the compressed data ends here: {text}\n".encode()

    def close(self) -> None:
        self._stream.close()
        self._raw.close()
        super().close()
