"""Tensors written to a file in the safetensors format, so that other threads go on meanwhile.

The library's own writer copies every tensor into Python bytes and holds the interpreter's lock while the disk is
written; here the tensors' memory goes to the file as it is, without the lock, and a tensor may come in blocks.

Format: 8 bytes little-endian length of the header, the header as JSON (name -> dtype, shape, offsets of the data behind
it), the data (safetensors README, "Format").
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""The format's names of the dtypes."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ALIGNMENT = 8
_CHUNK_BYTES = 64 << 20  # one write call does at most 2 GiB


@dataclass(frozen=True)
class Entry:
    """A tensor to write, whose rows may come in several blocks."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[Tensor]]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def write_parts(path: Path, parts: Iterable[memoryview | bytes]) -> dict[str, int]:
    """Write ``parts`` to ``path``, to the disk, and return the file's {"bytes", "crc32"} as a manifest has them.

    The page cache is given back: nothing reads a checkpoint that was just written. Left there, it pushes out the pages
    of the data set, and new pages cost the kernel more than the writing; so the next file takes those of this one.

    Raises:
        OSError: the file cannot be written.
    """
    size, crc = 0, 0
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
            size, crc = size + len(part), zlib.crc32(part, crc)
        file.flush()
        os.fsync(file.fileno())
        with contextlib.suppress(OSError):  # advice: a file system may have no use for it
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return {"bytes": size, "crc32": crc}


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Write ``tensors`` (of any device) to ``path``, to the disk, and return the file's entry in a manifest.

    One tensor at a time is in host memory. The checksum is that of the tensors, not of what the disk gives back: a disk
    that changed it is told at the next load.

    Raises:
        OSError: the file cannot be written.
    """
    entries = [
        Entry(name, tensor.dtype, tuple(tensor.shape), lambda tensor=tensor: (tensor,))  # type: ignore[misc]
        for name, tensor in tensors.items()
    ]
    return write_entries(path, entries)


def write_entries(path: Path, entries: Iterable[Entry], metadata: Mapping[str, str] | None = None) -> dict[str, int]:
    """Write header and data of a file, to the disk, and return its entry in a manifest. Raises OSError."""
    # Wide elements first: each tensor then begins at a multiple of its element size.
    ordered = sorted(entries, key=lambda entry: (-entry.dtype.itemsize, entry.name))
    return write_parts(path, _contents(ordered, metadata))


def _contents(ordered: list[Entry], metadata: Mapping[str, str] | None) -> Iterator[memoryview | bytes]:
    yield _header(ordered, metadata)
    for entry in ordered:
        for block in entry.blocks():
            data = bytes_of(block.detach().to("cpu").contiguous())
            for start in range(0, len(data), _CHUNK_BYTES):
                yield data[start : start + _CHUNK_BYTES]


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor of the host."""
    array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _header(ordered: list[Entry], metadata: Mapping[str, str] | None) -> bytes:
    table: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for entry in ordered:
        end = position + entry.nbytes
        table[entry.name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
