"""Documents from text files: JSON lines (also gzip) and plain text."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from neoxlite.data.system_errors import reading
from neoxlite.errors import DataError

_JSON_LINES = (".jsonl", ".ndjson", ".json")
_PLAIN = (".txt",)


@dataclass(frozen=True)
class Record:
    """One document.

    Attributes:
        texts: text of each key asked for, in that order.
        bytes_read: bytes of all input files (as stored) consumed so far.
    """

    texts: tuple[str, ...]
    bytes_read: int


def total_bytes(paths: Sequence[Path]) -> int:
    """Return the size of the input files on disk. Raises DataError, naming the file, if one cannot be read."""
    total = 0
    for path in paths:
        _kind(path)
        with reading(f"input {path}"):
            if not path.is_file():
                raise DataError(f"input {path}: no such file", hint="Separate several input files by commas.")
            total += path.stat().st_size
    return total


def read_records(paths: Sequence[Path], keys: Sequence[str] = ("text",)) -> Iterator[Record]:
    """Yield the documents of the files in order, one at a time.

    Args:
        paths: ``.jsonl`` (one JSON object a line, blank lines skipped), the same with ``.gz``, or ``.txt``, which is
            one document under every key, as in GPT-NeoX's preprocess_data.
        keys: fields of the JSON objects.

    Raises:
        DataError: a file is missing or of another kind, a line is no JSON object of UTF-8, or a key is missing or no
            string; the message names file and line.
    """
    done = 0
    for path in paths:
        plain = _kind(path) == "plain"
        try:
            with path.open("rb") as raw:
                if plain:
                    text = _decoded(raw.read(), path, 0)
                    yield Record((text,) * len(keys), done + raw.tell())
                else:
                    yield from _read_lines(path, raw, keys, done)
                done += raw.seek(0, io.SEEK_END)
        except gzip.BadGzipFile as error:
            raise DataError(f"input {path}: {error}", hint="Compress the file again.") from error
        except EOFError as error:
            raise DataError(f"input {path}: the compressed file is cut off", hint="Copy it again.") from error
        except OSError as error:
            raise DataError(f"input {path}: {error.strerror or error}", hint="Give files that can be read.") from error


def _kind(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    if name.endswith(_JSON_LINES):
        return "json"
    if path.name.endswith(_PLAIN):
        return "plain"
    raise DataError(
        f"input {path}: the kind of file is not known from its name",
        hint="Give .jsonl, .jsonl.gz or .txt files; decompress .zst and unpack archives first.",
    )


def _read_lines(path: Path, raw: IO[bytes], keys: Sequence[str], done: int) -> Iterator[Record]:
    lines: IO[bytes] = gzip.GzipFile(fileobj=raw) if path.name.endswith(".gz") else raw  # type: ignore[assignment]
    counted = lines is raw
    position = 0
    for number, line in enumerate(lines, start=1):
        position = position + len(line) if counted else raw.tell()
        if line.strip():
            record = _parse(_decoded(line, path, number), path, number)
            yield Record(tuple(_field(record, key, path, number) for key in keys), done + position)


def _decoded(data: bytes, path: Path, number: int) -> str:
    try:
        return data.decode("utf-8-sig" if number <= 1 else "utf-8")
    except UnicodeDecodeError as error:
        where = f"{path}:{number}" if number else f"{path}"
        raise DataError(
            f"input {where}: not UTF-8 ({error.reason} at byte {error.start})", hint="Convert the file: iconv -t UTF-8"
        ) from None


def _parse(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(
            f"input {path}:{number}: not JSON ({error.msg} at column {error.colno})",
            hint='Each line must be an object such as {"text": "..."}',
        ) from None
    if not isinstance(record, dict):
        raise DataError(
            f"input {path}:{number}: {type(record).__name__} where an object belongs",
            hint='Each line must be an object such as {"text": "..."}',
        )
    return record


def _field(record: dict[str, Any], key: str, path: Path, number: int) -> str:
    text = record.get(key)
    if not isinstance(text, str):
        found = "there is no key" if key not in record else f"{type(text).__name__} under the key"
        raise DataError(
            f"input {path}:{number}: {found} {key!r}; a text belongs there (keys: {', '.join(map(repr, record))})",
            hint="Name the key of the text with --jsonl-keys.",
        )
    return text
