"""Batches as torch tensors in memory that a GPU reads without a copy by the processor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


def pinned(batch: npt.NDArray[np.int64]) -> torch.Tensor:
    """Return the tokens of a batch as a tensor, in page-locked memory where there is a GPU.

    `torch.Tensor.to` with ``non_blocking=True`` then copies it while the GPU computes.
    """
    tensor = torch.from_numpy(batch)
    return tensor.pin_memory() if torch.cuda.is_available() else tensor
