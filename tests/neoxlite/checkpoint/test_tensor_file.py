"""The writer of tensors against the safetensors library's reader."""

from __future__ import annotations

import binascii
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from neoxlite.checkpoint.tensor_file import write_tensors


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    """Every precision, odd sizes, views, a scalar, an empty tensor and a hostile name: values, shapes and types."""
    base = torch.randn(6, 10, dtype=torch.float64)
    tensors = {
        "exp_avg/2.attention.dense.weight/0": base.float()[::2, 1:4],
        "half": base.to(torch.bfloat16)[:3, :3],
        "fp16": base.half().t(),
        "count": torch.arange(3),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        '重み"\\\n': torch.ones(1, dtype=torch.bfloat16),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    path = tmp_path / "層.safetensors"
    entry = write_tensors(path, tensors)
    assert entry == {"bytes": path.stat().st_size, "crc32": binascii.crc32(path.read_bytes())}
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor.detach())


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    """The save above turns it into a message."""
    with pytest.raises(FileNotFoundError):
        write_tensors(tmp_path / "no" / "x.safetensors", {"a": torch.ones(1)})
