"""Tensors written to a file in the safetensors format, so that other threads go on meanwhile.

The library's own writer copies every tensor into Python bytes and holds the interpreter's lock while the disk is
written; here the tensors' memory goes to the file as it is, without the lock. Format: 8 bytes little-endian length of
the header, the header as JSON (name -> dtype, shape, offsets of the data behind it), the data (safetensors README,
"Format").
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}
_ALIGNMENT = 8
_CHUNK_BYTES = 64 << 20  # one write call does at most 2 GiB


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write ``tensors`` (of any device) to ``path``, one of them at a time in host memory.

    Raises:
        OSError: the file cannot be written.
    """
    # Wide elements first: each tensor then begins at a multiple of its element size.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    with path.open("wb") as file:
        file.write(_header(ordered))
        for _, tensor in ordered:
            data = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy().data
            for start in range(0, len(data), _CHUNK_BYTES):
                file.write(data[start : start + _CHUNK_BYTES])


def _header(ordered: list[tuple[str, Tensor]]) -> bytes:
    entries: dict[str, Any] = {}
    position = 0
    for name, tensor in ordered:
        end = position + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
