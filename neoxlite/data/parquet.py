"""Documents from Parquet files, with the optional library pyarrow."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from neoxlite.data.bad_input import BadInput
from neoxlite.data.json_lines import Columns
from neoxlite.errors import DataError
from neoxlite.tokenizers.base import needed_library

_ROWS: Final = 512


def read_parquet(path: Path, keys: Sequence[str], bad: BadInput) -> Iterator[tuple[Columns, float]]:
    """Yield the texts of a file's columns, some rows at a time, and the share of the rows read.

    Raises:
        DataError: pyarrow is missing, the file is damaged, a column is missing or no text.
    """
    arrow = needed_library("pyarrow", "a .parquet file", "data")
    parquet = needed_library("pyarrow.parquet", "a .parquet file", "data")
    rows = 0
    try:
        with parquet.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow, keys)
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(_ROWS, columns=list(keys)):
                texts = [batch.column(key).to_pylist() for key in keys]
                yield _without_nulls(path, texts, keys, rows, bad), (rows + batch.num_rows) / total
                rows += batch.num_rows
    except arrow.ArrowException as error:
        reason = str(error).splitlines()[0]
        bad.file(DataError(f"input {path}: damaged behind row {rows} ({reason})", hint="copy the file again"))
    except UnicodeDecodeError as error:
        bad.file(DataError(f"input {path}: not UTF-8 behind row {rows} ({error.reason})", hint="write it again"))


def _check_columns(path: Path, schema: Any, keys: Sequence[str]) -> None:
    types = importlib.import_module("pyarrow.types")
    for key in keys:
        if key not in schema.names:
            known = ", ".join(map(repr, schema.names[:10]))
            raise DataError(
                f"input {path}: there is no column {key!r} (columns: {known})",
                hint="name the column of the text with --jsonl-keys",
            )
        kind = schema.field(key).type
        if not (types.is_string(kind) or types.is_large_string(kind)):
            raise DataError(
                f"input {path}: column {key!r} is of type {kind}, not text",
                hint="name the column of the text with --jsonl-keys",
            )


def _without_nulls(path: Path, texts: list[list[Any]], keys: Sequence[str], first: int, bad: BadInput) -> Columns:
    if not any(None in column for column in texts):
        return tuple(texts)
    kept: Columns = tuple([] for _ in keys)
    for number, row in enumerate(zip(*texts, strict=True), start=first + 1):
        if None in row:
            key = keys[row.index(None)]
            bad.document(DataError(f"input {path}, row {number}: nothing under {key!r}", hint="a text belongs there"))
            continue
        for column, text in zip(kept, row, strict=True):
            column.append(text)
    return kept
