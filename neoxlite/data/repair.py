"""Save what is whole of a damaged dataset."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neoxlite.data.index_file import MMAP_HEADER, MMAP_MAGIC, TOKEN_DTYPES
from neoxlite.data.indexed import bin_path, idx_path
from neoxlite.data.system_errors import reading, writing
from neoxlite.data.writer import DatasetWriter
from neoxlite.errors import DataError

_CHUNK_TOKENS: Final = 1 << 22
_CHUNK_DOCUMENTS: Final = 1 << 18

Numbers = npt.NDArray[np.int64]


@dataclass
class Repaired:
    """What a repair saved.

    Attributes:
        documents, tokens: written.
        lost_bytes: bytes of the .bin file that belong to no whole sequence.
        notes: what was wrong and what was done about it.
    """

    documents: int = 0
    tokens: int = 0
    lost_bytes: int = 0
    notes: list[str] = field(default_factory=list)


def repair_dataset(prefix: str, output: str, *, eod: int | None = None, dtype: npt.DTypeLike | None = None) -> Repaired:
    """Write the whole sequences of a damaged dataset as a new one.

    Handles a cut .bin or .idx file, sizes or offsets that do not fit, document boundaries that are missing (files
    merged by GPT-NeoX) or wrong, and, with ``eod``, an .idx file that is gone.

    Args:
        prefix: the damaged dataset, which is left as it is.
        output: prefix of the new one.
        eod: id that ends a document; used to find the documents where the index does not say. (An empty sequence
            behind one is then a document.)
        dtype: type of the tokens where the index does not say.

    Raises:
        DataError: there is nothing to save, or ``eod`` or ``dtype`` is needed.
        NeoxliteError: the output cannot be written.
    """
    if Path(output).absolute() == Path(prefix).absolute():
        raise DataError(f"{output} is both read and written", hint="choose another name for the output")
    report = Repaired()
    with reading(f"dataset {prefix}"):
        if not bin_path(prefix).is_file():
            raise DataError(f"{bin_path(prefix)} does not exist", hint="without its tokens a dataset cannot be saved")
        found = _read_remains(prefix, report)
        kind = np.dtype(dtype) if dtype is not None else found.dtype
        if kind is None:
            raise DataError(
                f"{idx_path(prefix)} does not record the type of the tokens",
                hint="give it: --dtype uint16 (vocabularies below 65,500) or --dtype int32, and --eod ID",
            )
        count = bin_path(prefix).stat().st_size // kind.itemsize
        tokens: npt.NDArray[Any] = np.memmap(bin_path(prefix), kind, mode="r", shape=count) if count else np.empty(0)
        ends = _sequence_ends(prefix, found, tokens, eod, report)
        documents = _document_ends(found, ends, tokens, eod, report)
    whole = int(ends[-1]) if ends.size else 0
    if whole == 0:
        raise DataError(
            f"{prefix}: nothing of it is complete{''.join(f'; {note}' for note in report.notes)}",
            hint="copy it again, or write it again from its text",
        )
    report.lost_bytes = bin_path(prefix).stat().st_size - whole * kind.itemsize
    with writing(output), DatasetWriter(output, kind) as writer:
        for start in range(0, whole, _CHUNK_TOKENS):
            writer.add_tokens(tokens[start : min(start + _CHUNK_TOKENS, whole)])
        writer.set_layout(np.diff(ends, prepend=0), documents)
    report.documents, report.tokens = documents.size, whole
    return report


@dataclass(frozen=True)
class _Remains:
    """What an index file still says; empty arrays and None for what it does not."""

    dtype: np.dtype[Any] | None = None
    sizes: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    offsets: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    documents: Numbers = field(default_factory=lambda: np.empty(0, np.int64))


def _read_remains(prefix: str, report: Repaired) -> _Remains:
    path = idx_path(prefix)
    if not path.is_file():
        report.notes.append("there is no index")
        return _Remains()
    data = np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    if data.size < MMAP_HEADER.size or data[:9].tobytes() != MMAP_MAGIC:
        report.notes.append("the index has no header that can be read")
        return _Remains()
    _, _, code, n, m = MMAP_HEADER.unpack_from(data[: MMAP_HEADER.size].tobytes())
    if data.size not in (MMAP_HEADER.size + 12 * n + 8 * m, MMAP_HEADER.size + 13 * n + 8 * m):
        report.notes.append(f"the index is truncated or its counts ({n} sequences, {m} boundaries) are wrong")
    n = min(n, (data.size - MMAP_HEADER.size) // 4)
    at = MMAP_HEADER.size + 4 * n
    sizes = np.frombuffer(data, "<i4", n, MMAP_HEADER.size).astype(np.int64)
    offsets = np.frombuffer(data, "<i8", min(n, (data.size - at) // 8), at).astype(np.int64)
    at += 8 * n
    documents = np.frombuffer(data, "<i8", min(m, max(data.size - at, 0) // 8), min(at, data.size)).astype(np.int64)
    return _Remains(TOKEN_DTYPES.get(code), sizes, offsets, documents if documents.size == m else documents[:0])


def _sequence_ends(
    prefix: str, found: _Remains, tokens: npt.NDArray[Any], eod: int | None, report: Repaired
) -> Numbers:
    """Return the token behind each whole sequence."""
    itemsize = tokens.dtype.itemsize
    if found.sizes.size == 0:
        if eod is None:
            raise DataError(
                f"{idx_path(prefix)} does not record where the documents end", hint="give the token that does: --eod ID"
            )
        report.notes.append(f"documents end behind each token {eod}")
        return _behind(tokens, eod)
    bad = np.flatnonzero(found.sizes < 0)
    ends = np.cumsum(found.sizes[: bad[0]] if bad.size else found.sizes)
    if (bad.size or int(ends[-1]) != tokens.size) and _are_offsets(found.offsets, tokens):
        starts = found.offsets // itemsize
        last = min(int(starts[-1]) + max(int(found.sizes[-1]), 0), tokens.size)
        if starts.size == found.sizes.size and not np.array_equal(starts[1:], ends[:-1]):
            report.notes.append("sizes do not fit the offsets, which were used")
            return np.append(starts[1:], last)
    kept = ends[ends <= tokens.size]
    if kept.size < found.sizes.size:
        report.notes.append(f"the last {found.sizes.size - kept.size} of {found.sizes.size} sequences are not complete")
    return kept


def _are_offsets(offsets: Numbers, tokens: npt.NDArray[Any]) -> bool:
    itemsize = tokens.dtype.itemsize
    return bool(
        offsets.size
        and offsets[0] == 0
        and int(offsets[-1]) <= tokens.size * itemsize
        and _rise(offsets)
        and not (offsets % itemsize).any()
    )


def _rise(numbers: Numbers) -> bool:
    """Tell whether none is less than the one before; the differences of damaged numbers may be beyond 64 bits."""
    return bool((numbers[1:] >= numbers[:-1]).all())


def _document_ends(
    found: _Remains, ends: Numbers, tokens: npt.NDArray[Any], eod: int | None, report: Repaired
) -> Numbers:
    """Return the sequence behind each document."""
    told = found.documents
    sound = told.size > 0 and told[0] == 0 and _rise(told) and int(told[-1]) == found.sizes.size
    if sound:
        inside = told[1:][told[1:] <= ends.size]
        rest = [] if not ends.size or (inside.size and inside[-1] == ends.size) else [ends.size]
        return np.append(inside, rest).astype(np.int64)
    if eod is None:
        report.notes.append("document boundaries were missing or wrong; each sequence is a document")
        return np.arange(1, ends.size + 1)
    if found.sizes.size:
        report.notes.append(f"document boundaries were missing or wrong; sequences that end with {eod} end a document")
    is_last = np.zeros(ends.size, np.bool_)
    for start in range(0, ends.size, _CHUNK_DOCUMENTS):
        part = ends[start : start + _CHUNK_DOCUMENTS]
        is_last[start : start + part.size] = (part > 0) & (tokens[np.maximum(part - 1, 0)] == eod)
    is_last[-1:] = True
    return np.flatnonzero(is_last) + 1


def _behind(tokens: npt.NDArray[Any], eod: int) -> Numbers:
    found = [
        np.flatnonzero(tokens[start : start + _CHUNK_TOKENS] == eod) + start + 1
        for start in range(0, tokens.size, _CHUNK_TOKENS)
    ]
    ends = np.concatenate(found) if found else np.empty(0, np.int64)
    if tokens.size and (not ends.size or ends[-1] != tokens.size):
        ends = np.append(ends, tokens.size)
    return ends.astype(np.int64)
