"""Documents from files of any kind: JSON lines, plain text, Parquet, archives, compressed or not."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from neoxlite.data.bad_input import BadInput
from neoxlite.data.compressed import damage, damage_errors, decompressed, split_compression
from neoxlite.data.json_lines import Columns, LineParser, Readable, read_lines
from neoxlite.data.parquet import read_parquet
from neoxlite.data.shard import WHOLE, LineRange, Shard, count_lines, line_start
from neoxlite.data.system_errors import reading
from neoxlite.errors import DataError

_JSON_LINES: Final = (".jsonl", ".ndjson", ".json")
_DOCUMENT_BYTES: Final = 1 << 31
_ARCHIVE_DEPTH: Final = 3
# RuntimeError: zipfile means an encrypted member, or one packed in a way it does not know.
_ARCHIVE_ERRORS: Final[tuple[type[Exception], ...]] = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    RuntimeError,
)
_KINDS: Final = ".jsonl, .txt, .parquet, .tar or .zip, the first two and .tar also with .gz, .zst, .xz or .bz2"


@dataclass(frozen=True)
class Batch:
    """Some documents.

    Attributes:
        columns: texts of each key asked for, in that order; all of one length.
        bytes_read: bytes of all input files (as stored) consumed so far, those of other shards left out.
    """

    columns: Columns
    bytes_read: int

    def __len__(self) -> int:
        return len(self.columns[0])


def input_files(names: Sequence[Path]) -> list[Path]:
    """Return the files to read: a folder stands for its files of a known kind, in the order of their names.

    Raises:
        DataError: a file is missing, of a kind that its name does not tell, or a folder has none.
    """
    files: list[Path] = []
    for name in names:
        with reading(f"input {name}"):
            if name.is_dir():
                inside = sorted(path for path in name.iterdir() if path.is_file() and _kind(path.name))
                if not inside:
                    raise DataError(f"input {name}: the folder has no files to read", hint=f"known are {_KINDS}")
                files += inside
                continue
            if _kind(name.name) is None:
                raise DataError(
                    f"input {name}: the kind of file is not known from its name", hint=f"known are {_KINDS}"
                )
            if not name.is_file():
                raise DataError(f"input {name}: no such file", hint="separate several input files by commas")
        files.append(name)
    return files


def total_bytes(paths: Sequence[Path], shard: Shard = WHOLE) -> int:
    """Return the size on disk of the part of the input files that belongs to a shard."""
    with reading("input"):
        total = sum(path.stat().st_size for path in paths)
    return len(shard.bytes_of(total))


def read_batches(
    paths: Sequence[Path], keys: Sequence[str] = ("text",), *, bad: BadInput | None = None, shard: Shard = WHOLE
) -> Iterator[Batch]:
    """Yield the documents of the files in order, some at a time, in constant memory.

    Args:
        paths: files of `input_files`. JSON lines hold one object a line (blank lines are skipped); a ``.txt`` and any
            other file in an archive is one document under every key, as in GPT-NeoX's preprocess_data.
        keys: fields of the JSON objects, columns of Parquet.
        bad: what to do with bad documents; by default the first one is an error.
        shard: the part to read.

    Raises:
        DataError: a file is missing, of another kind or damaged, a line is no JSON object of UTF-8, or a key is missing
            or no string; the message names file and line.
    """
    bad = BadInput() if bad is None else bad
    with reading("input"):
        sizes = [path.stat().st_size for path in paths]
    part = shard.bytes_of(sum(sizes))
    before = 0
    for path, size in zip(paths, sizes, strict=True):
        own = range(max(part.start - before, 0), min(part.stop - before, size))
        if own or (size == 0 and before in part):
            yield from _File(path, size, keys, bad).read(own, max(before - part.start, 0))
        before += size


class _File:
    """One input file."""

    def __init__(self, path: Path, size: int, keys: Sequence[str], bad: BadInput) -> None:
        self._path, self._size, self._keys, self._bad = path, size, keys, bad

    def read(self, own: range, done: int) -> Iterator[Batch]:
        """Yield what belongs to the bytes ``own`` of the file; ``done`` bytes were read before."""
        path, size = self._path, self._size
        kind = _kind(path.name)
        entered = kind == "json" and not split_compression(path.name)[1]
        if not entered and own.start > 0:
            return  # the file begins in an earlier shard
        with reading(f"input {path}"), path.open("rb") as raw:
            position = 0
            try:
                if kind == "parquet":
                    for columns, share in read_parquet(path, self._keys, self._bad):
                        yield Batch(columns, done + int(size * share))
                elif entered:
                    first, last = line_start(raw, own.start, size), line_start(raw, own.stop, size)
                    for columns in self._lines(LineRange(raw, first, last), str(path), first):
                        position = max(raw.tell() - own.start, 0)
                        yield Batch(columns, done + position)
                else:
                    for columns in self._stream(raw, path.name, str(path), _ARCHIVE_DEPTH):
                        position = raw.tell()
                        yield Batch(columns, done + position)
            except damage_errors() + _ARCHIVE_ERRORS as error:
                self._bad.file(_as_data_error(error, str(path)))
            yield Batch(tuple([] for _ in self._keys), done + (len(own) if entered else size))

    def _lines(self, stream: Readable, name: str, first: int = 0) -> Iterator[Columns]:
        """Yield the texts of lines; the stream begins at byte ``first`` of the file."""

        def lines_before() -> int:
            with self._path.open("rb") as file:
                return count_lines(file, first)

        parser = LineParser(name, self._keys, self._bad, lines_before=lines_before if first else None)
        return read_lines(stream, parser, name)

    def _stream(self, raw: IO[bytes], file_name: str, name: str, depth: int) -> Iterator[Columns]:
        """Yield what a compressed or plain stream holds, by its name."""
        inner, suffix = split_compression(file_name)
        stream = decompressed(raw, suffix)
        if inner.endswith(_JSON_LINES):
            yield from self._lines(stream, name)
        elif inner.endswith((".tar", ".zip")):
            if depth == 0:
                raise DataError(f"input {name}: archives inside archives inside archives", hint="unpack some")
            yield from self._tar(stream, name, depth) if inner.endswith(".tar") else self._zip(stream, name, depth)
        else:
            yield from self._document(stream, name)

    def _tar(self, stream: IO[bytes], name: str, depth: int) -> Iterator[Columns]:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                inside = archive.extractfile(member) if member.isfile() else None
                if inside is not None:
                    yield from self._member(inside, name, member.name, depth)

    def _zip(self, stream: IO[bytes], name: str, depth: int) -> Iterator[Columns]:
        with zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                if not member.is_dir():
                    with archive.open(member) as inside:
                        yield from self._member(inside, name, member.filename, depth)

    def _member(self, stream: IO[bytes], archive: str, member: str, depth: int) -> Iterator[Columns]:
        name = f"{archive}({member})"
        if member.endswith(".parquet"):
            raise DataError(f"input {name}: Parquet inside an archive", hint="unpack it first")
        yield from self._stream(stream, member, name, depth - 1)

    def _document(self, stream: IO[bytes], name: str) -> Iterator[Columns]:
        data = stream.read(_DOCUMENT_BYTES)
        try:
            if len(data) == _DOCUMENT_BYTES:
                raise DataError(f"input {name}: a document of more than 2 GiB", hint="divide it")
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self._bad.document(
                DataError(
                    f"input {name}: not UTF-8 ({error.reason} at byte {error.start})",
                    hint="convert the file: iconv -t UTF-8",
                )
            )
            return
        yield tuple([text] for _ in self._keys)


def _kind(name: str) -> str | None:
    """Return "json", "text", "archive" or "parquet" from a file's name; None for another."""
    inner, suffix = split_compression(name)
    if inner.endswith(_JSON_LINES):
        return "json"
    if inner.endswith(".txt"):
        return "text"
    if inner.endswith(".tar") or name.endswith(".zip"):
        return "archive"
    return "parquet" if name.endswith(".parquet") and not suffix else None


def _as_data_error(error: Exception, name: str) -> DataError:
    """Return what a reader's error means to a user."""
    if isinstance(error, _ARCHIVE_ERRORS):
        return DataError(f"input {name}: the archive cannot be read ({error})", hint="pack it or copy it again")
    return DataError(f"input {name}: {damage(error)}", hint="copy the file again")
