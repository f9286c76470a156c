"""Safetensors files, read and written by blocks of rows.

The library maps a file into memory and writes whole tensors; here no more than a block is resident. The format is
described in `neoxlite.checkpoint.tensor_file`, which writes it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neoxlite.checkpoint.tensor_file import DTYPES, Entry, bytes_of, write_entries
from neoxlite.convert.weight import Weight
from neoxlite.errors import CheckpointError

_HEADER_LIMIT = 100_000_000  # of the format


def dtype_name(dtype: torch.dtype) -> str:
    """Return the configuration's word for a dtype: fp32, bf16, fp16, or torch's own."""
    words = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
    return words.get(dtype, str(dtype).removeprefix("torch."))


class TensorFile:
    """The header of a file; its tensors are read when asked for.

    Raises:
        CheckpointError: the file is missing or damaged, with what is wrong about it.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._begin, header = _read_header(file, size)
            self.metadata: dict[str, str] = header.pop("__metadata__", {})
            self._tensors = {name: _entry(name, entry) for name, entry in header.items()}
            end = self._begin + max((last for *_, last in self._tensors.values()), default=0)
            if end != size:
                raise ValueError(f"{size:,} bytes where its header records {end:,}")
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}", hint="copy it again") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{path} is damaged: {error}", hint="copy it again") from None

    def weights(self) -> dict[str, Weight]:
        """Return all tensors by name; a scalar is one row."""
        return {name: self._weight(name) for name in self._tensors}

    def _weight(self, name: str) -> Weight:
        dtype, shape, first, _ = self._tensors[name]
        width = math.prod(shape[1:])
        return Weight(
            shape,
            dtype,
            lambda start, end: self._read(first + start * width * dtype.itemsize, (end - start, *shape[1:]), dtype),
        )

    def _read(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        buffer = bytes_of(tensor)
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self._begin + offset)
                while len(buffer):
                    count = file.readinto(buffer)
                    if not count:
                        raise CheckpointError(f"{self.path} has become shorter", hint="copy it again")
                    buffer = buffer[count:]
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error.strerror}", hint="copy it again") from None
        return tensor


def _read_header(file: Any, size: int) -> tuple[int, dict[str, Any]]:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(_HEADER_LIMIT, size - 8):
        raise ValueError(f"it is not a safetensors file, or truncated at {size:,} bytes")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    return 8 + length, header


def _entry(name: str, entry: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"{name} has the dtype {entry['dtype']}, which is not known")
    dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"]) or (1,)
    first, last = entry["data_offsets"]
    if any(type(number) is not int or number < 0 for number in (*shape, first, last)):
        raise ValueError(f"{name} has no sensible shape or place")
    if last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {last - first:,} bytes, its shape takes {math.prod(shape) * dtype.itemsize:,}")
    return dtype, shape, first, last


def write_tensors(path: Path, weights: Mapping[str, Weight], metadata: Mapping[str, str]) -> dict[str, int]:
    """Write ``weights`` to ``path``, to the disk, and return {"bytes", "crc32"} as a manifest has them.

    Raises:
        OSError: it cannot be written.
    """
    return write_entries(
        path, [Entry(name, weight.dtype, weight.shape, weight.blocks) for name, weight in weights.items()], metadata
    )
