"""Whether a number on the device is finite, known to the host while the device works on what came later."""

from __future__ import annotations

import torch
from torch import Tensor


class Verdict:
    """Asks as soon as it is made; the answer does not wait for what is given to the device in between."""

    def __init__(self, number: Tensor):
        finite = torch.isfinite(number)
        self._ready: torch.cuda.Event | None = None
        self._finite = finite
        if finite.is_cuda:
            self._finite = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(finite, non_blocking=True)
            self._ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._ready.record()

    def finite(self) -> bool:
        """Return the answer, waiting for the number only."""
        if self._ready is not None:
            self._ready.synchronize()
        return bool(self._finite)
