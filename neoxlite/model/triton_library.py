"""Whether this machine can run Triton kernels: the library, the GPU and the compiler that they need."""

from __future__ import annotations

import functools
import shutil
import sys

import torch


def why_no_triton(device: torch.device) -> str | None:
    """Return why ``device`` cannot run Triton kernels; None where it can, and for a CPU, which needs none."""
    problem = _why_no_library()
    if device.type != "cuda":
        return None
    if problem is not None:
        return problem
    if torch.cuda.get_device_capability(device) < (7, 0):
        return "Triton needs compute capability 7.0"
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return "Triton needs a C compiler (cc, gcc or clang) on PATH, and there is none"
    return None


@functools.cache
def _why_no_library() -> str | None:
    """Return why Triton cannot be imported, and have torch find none then.

    torch looks for it on every device, behind its first optimizer, and takes nothing but an ImportError for "there is
    none": a library that misses a file of the system raises OSError.
    """
    try:
        import triton  # noqa: F401
    except Exception as error:  # half installed, or of another torch
        sys.modules["triton"] = None  # type: ignore[assignment] # an import then is an ImportError
        if isinstance(error, ModuleNotFoundError) and error.name == "triton":
            return "Triton is not installed"
        return f"Triton cannot be imported ({type(error).__name__}: {error})"
    return None
