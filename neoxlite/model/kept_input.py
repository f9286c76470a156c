"""What activation checkpointing keeps of a group of blocks: its input, shared out over ranks or on the host."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from neoxlite.parallel.topology import Topology


class KeptInput:
    """The input of recomputed layers, which is let go between the forward pass and its repetition.

    Args:
        x: the same on all tensor-parallel ranks of ``topology``; with more than one of them each keeps a part.
        on_host: keep it in host memory.
    """

    def __init__(self, x: Tensor, topology: Topology, *, on_host: bool):
        self.value: Tensor | None = x
        """The whole input, while it is needed."""
        self._shape, self._device, self._needs_grad = x.shape, x.device, x.requires_grad
        self._group = topology.group("tensor")
        kept = x.detach().reshape(-1)
        if self._group is not None:
            kept = kept.chunk(topology.tensor_size)[topology.tensor_rank]
        if on_host:
            pinned = self._device.type == "cuda"
            host = torch.empty(kept.shape, dtype=kept.dtype, device="cpu", pin_memory=pinned)
            self._kept = host.copy_(kept, non_blocking=pinned)
        else:
            self._kept = kept.clone()  # a view would keep the whole

    def let_go(self) -> None:
        """Forget the whole, and hold what is kept of it."""
        self.value = None

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Have the whole inside the block; the tensor-parallel ranks enter it together."""
        whole = self._kept.to(self._device, non_blocking=True)
        if self._group is not None:
            parts, whole = whole, whole.new_empty(self._shape.numel())
            dist.all_gather_into_tensor(whole, parts, group=self._group)
        self.value = whole.view(self._shape).requires_grad_(self._needs_grad)
        try:
            yield
        finally:
            self.value = None
