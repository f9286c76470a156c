"""A Triton that cannot be imported: one line says so, and torch trains without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch.utils._triton import has_triton_package

from neoxlite.model.triton_library import _why_no_library


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise OSError('libcuda.so.1: no')", "Triton cannot be imported (OSError: libcuda.so.1: no)"),
        ("import libtriton_of_another", "Triton cannot be imported (ModuleNotFoundError: No module named "),
        ("raise ModuleNotFoundError('no', name='triton')", "Triton is not installed"),
    ],
)
def test_a_broken_library_is_told_and_torch_does_without(
    source: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its import raises; torch by itself takes an ImportError alone for no Triton."""
    (tmp_path / "triton.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "triton", None)  # puts back what is there
    del sys.modules["triton"]
    # Both keep their answer.
    assert str(_why_no_library.__wrapped__()).startswith(told)
    assert has_triton_package.__wrapped__() is False
