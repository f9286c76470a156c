"""Batches as torch tensors in memory that a GPU reads without a copy by the processor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


def pinned(batch: npt.NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Return the tokens of a batch as a tensor, in page-locked memory if they are meant for a GPU.

    `torch.Tensor.to` with ``non_blocking=True`` then copies it while the GPU computes.
    """
    tensor = torch.from_numpy(batch)
    if device.type != "cuda":
        return tensor
    # A thread has a current device of its own, at first GPU 0: every process of a node would claim memory there.
    with torch.cuda.device(device):
        return tensor.pin_memory()
