"""Headers of the ``.idx`` file of a tokenised dataset: today's layout (MMIDIDX) and the older one (TNTIDX).

Layouts as GPT-NeoX writes them (megatron/data/indexed_dataset.py at ea7aefd8), all numbers little-endian::

    MMIDIDX  magic 9 | version u64 = 1 | dtype code u8 | n u64 | m u64
             | sizes n x i32 | pointers n x i64 | documents m x i64
    TNTIDX   magic 8 | version u64 = 1 | dtype code u64 | item size u64 | n u64 | s u64 | m u64
             | dimension offsets (n+1) x i64 | data offsets (n+1) x i64 | sizes s x i64 | documents m x i64

``n`` counts sequences, ``m`` document boundaries (one more than documents). Megatron Core appends n x i8 of modes to
MMIDIDX files of multimodal data; they are ignored.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neoxlite.errors import DataError
from neoxlite.tokenizers.kinds import stand_in

MMAP_MAGIC: Final = b"MMIDIDX\x00\x00"
CACHED_MAGIC: Final = b"TNTIDX\x00\x00"
MMAP_HEADER: Final = struct.Struct("<9sQBQQ")  # 34 bytes, so what follows is not aligned
CACHED_HEADER: Final = struct.Struct("<8sQQQQQQ")
VERSION: Final = 1

TOKEN_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype("u1"),
    2: np.dtype("i1"),
    3: np.dtype("<i2"),
    4: np.dtype("<i4"),
    5: np.dtype("<i8"),
    8: np.dtype("<u2"),
}
_FLOAT_CODES: Final = (6, 7)  # float32/float64 in GPT-NeoX, the other way round in Megatron Core: rewards, not tokens

IntArray = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Index:
    """What an ``.idx`` file says.

    Attributes:
        dtype: type of the tokens in the ``.bin`` file.
        sizes: tokens of each sequence, shape [n].
        pointers: byte offset of each sequence in the ``.bin`` file, shape [n].
        documents: document boundaries as indices into the sequences, from 0 to n, shape [m].
        bin_bytes: size that the ``.bin`` file must have.
        kind: "mmap" or "cached", GPT-NeoX's words for ``data_impl``.
    """

    dtype: np.dtype[Any]
    sizes: IntArray
    pointers: IntArray
    documents: IntArray
    bin_bytes: int
    kind: str


def dtype_code(dtype: npt.DTypeLike) -> int:
    """Return the code of a token dtype. Raises ValueError for one that the format does not know."""
    for code, known in TOKEN_DTYPES.items():
        if known == np.dtype(dtype):
            return code
    raise ValueError(f"no dtype code for {dtype}")


def read_index(path: Path) -> Index:
    """Map an ``.idx`` file and check its header against its length.

    Raises:
        DataError: not an index, an unknown version or dtype code, or a length that its counts do not explain.
    """
    length = path.stat().st_size
    data: npt.NDArray[np.uint8] = np.memmap(path, np.uint8, mode="r") if length else np.empty(0, np.uint8)
    start = data[: max(MMAP_HEADER.size, CACHED_HEADER.size)].tobytes()
    if start.startswith(MMAP_MAGIC):
        return _read_mmap(path, data, start)
    if start.startswith(CACHED_MAGIC):
        return _read_cached(path, data, start)
    if not length:
        raise DataError(
            f"{path} is empty",
            hint="the program that wrote or copied it was interrupted: copy it or write the dataset again",
        )
    found = stand_in(start)
    if found is not None:
        raise DataError(f"{path}: no dataset index; it is {found[0]}", hint=f"for this file {found[1]}")
    raise DataError(
        f"{path}: no dataset index; it begins with {start[:9]!r}, expected {MMAP_MAGIC!r} or {CACHED_MAGIC!r}",
        hint="give the prefix of a .bin/.idx pair made by `neoxlite tokenize` or GPT-NeoX's preprocess_data.py",
    )


def _read_mmap(path: Path, data: npt.NDArray[np.uint8], start: bytes) -> Index:
    _check_header_fits(path, data.size, MMAP_HEADER.size)
    _, version, code, n, m = MMAP_HEADER.unpack_from(start)
    dtype = _token_dtype(path, version, code)
    plain = MMAP_HEADER.size + 12 * n + 8 * m
    if data.size not in (plain, plain + n):
        raise _wrong_length(path, n, m, plain, data.size)
    sizes_at = MMAP_HEADER.size
    sizes = np.frombuffer(data, "<i4", n, sizes_at)
    pointers = np.frombuffer(data, "<i8", n, sizes_at + 4 * n)
    documents = np.frombuffer(data, "<i8", m, sizes_at + 12 * n)
    bin_bytes = int(pointers[-1]) + int(sizes[-1]) * dtype.itemsize if n else 0
    return Index(dtype, sizes, pointers, documents, bin_bytes, "mmap")


def _read_cached(path: Path, data: npt.NDArray[np.uint8], start: bytes) -> Index:
    _check_header_fits(path, data.size, CACHED_HEADER.size)
    _, version, code, item_bytes, n, s, m = CACHED_HEADER.unpack_from(start)
    dtype = _token_dtype(path, version, code)
    if item_bytes != dtype.itemsize:
        raise DataError(
            f"{path}: item size {item_bytes} does not fit dtype code {code} ({dtype.name}, {dtype.itemsize} bytes)",
            hint="the file is damaged; copy it or write it again",
        )
    expected = CACHED_HEADER.size + 8 * (2 * (n + 1) + s + m)
    if data.size != expected:
        raise _wrong_length(path, n, m, expected, data.size)
    if s != n:
        raise DataError(
            f"{path}: {n} items with {s} sizes: items of more than one dimension are not token sequences",
            hint="use a dataset of token sequences",
        )
    numbers = np.frombuffer(data, "<i8", -1, CACHED_HEADER.size)
    offsets = numbers[n + 1 : 2 * (n + 1)]
    sizes = numbers[2 * (n + 1) : 2 * (n + 1) + s]
    return Index(
        dtype,
        sizes,
        offsets[:-1] * item_bytes,
        numbers[-m:] if m else numbers[:0],
        int(offsets[-1]) * item_bytes,
        "cached",
    )


def _check_header_fits(path: Path, length: int, header: int) -> None:
    if length < header:
        raise DataError(
            f"{path}: {length} bytes, but the header alone has {header}: the file is truncated",
            hint="copy the file or write the dataset again",
        )


def _token_dtype(path: Path, version: int, code: int) -> np.dtype[Any]:
    if version != VERSION:
        raise DataError(
            f"{path}: format version {version}, expected {VERSION}",
            hint="the file is damaged or was written by a newer program; write the dataset again",
        )
    if code in TOKEN_DTYPES:
        return TOKEN_DTYPES[code]
    if code in _FLOAT_CODES:
        raise DataError(
            f"{path}: dtype code {code} is a floating-point type, but tokens are whole numbers",
            hint="this looks like a reward dataset; give a token dataset",
        )
    known = ", ".join(f"{number} ({dtype.name})" for number, dtype in TOKEN_DTYPES.items())
    raise DataError(
        f"{path}: unknown dtype code {code}; known are {known}",
        hint="the file is damaged; copy it or write it again",
    )


def _wrong_length(path: Path, n: int, m: int, expected: int, found: int) -> DataError:
    return DataError(
        f"{path}: {found} bytes, but {n} sequences and {m} document boundaries need {expected}",
        hint="the file is truncated or damaged; copy it or write the dataset again",
    )
