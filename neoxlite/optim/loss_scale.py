"""The loss scale of fp16: small gradients are lifted above fp16's least number, large ones kept below its greatest.

The rules are those of DeepSpeed's DynamicLossScaler (runtime/fp16/loss_scaler.py, 0.19.8), which GPT-NeoX trains with.
One thing is done otherwise: DeepSpeed's ZeRO optimizers change the scale before they divide the gradient by it, so that
the step at which it doubles is taken with half the gradient. Here it changes after the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from neoxlite.errors import NeoxliteError

_FACTOR = 2.0


class LossScaleError(NeoxliteError):
    """The gradient overflows, however small the scale."""


@dataclass
class LossScale:
    """Stands in a ZeRO optimizer's ``loss_scaler``; `settle` must follow each step.

    A static scale never changes; a step whose gradient overflows is skipped all the same.
    """

    scale: float
    dynamic: bool
    window: int = 1000
    """Good steps, behind the first one, after which the scale doubles."""
    hysteresis: int = 2
    """Overflows until the scale halves; refilled when it doubles."""
    minimum: float = 1.0
    consecutive: bool = False
    """Refill hysteresis at every good step."""

    def __post_init__(self) -> None:
        """Begin with full hysteresis."""
        self._good = 0
        self._left = self.hysteresis
        self._overflow: bool | None = None

    @classmethod
    def from_block(cls, block: Mapping[str, Any]) -> LossScale:
        """Read an ``fp16`` block; what it does not say has DeepSpeed's defaults."""
        static = float(block.get("loss_scale") or 0)
        return cls(
            scale=static or 2.0 ** int(block.get("initial_scale_power", 16)),
            dynamic=static == 0,
            window=int(block.get("loss_scale_window", 1000)),
            hysteresis=int(block.get("hysteresis", 2)),
            minimum=float(block.get("min_loss_scale", 1)),
            consecutive=bool(block.get("consecutive_hysteresis", False)),
        )

    # What the ZeRO optimizers ask for.

    @property
    def cur_scale(self) -> float:
        """The scale, under DeepSpeed's name."""
        return self.scale

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return the loss whose gradient is computed."""
        return loss * self.scale

    def update_scale(self, overflow: bool) -> None:
        """Note how the step goes that is being taken."""
        self._overflow = overflow

    # What the engine asks for.

    def settle(self) -> None:
        """Change the scale by what the last step was. Raises LossScaleError at the least scale."""
        overflow, self._overflow = self._overflow, None
        if overflow is None or not self.dynamic:
            return
        if overflow:
            self._good = 0
            self._fall()
            return
        if self.consecutive:
            self._left = self.hysteresis
        if self._good > 0 and self._good % self.window == 0:
            self._left = self.hysteresis
            self.scale *= _FACTOR
        self._good += 1

    def _fall(self) -> None:
        if self._left > 1:
            self._left -= 1
            return
        if self.scale == self.minimum:
            raise LossScaleError(
                f"the gradient overflows fp16 at the least loss scale, {self.minimum:g}",
                hint="lower the learning rate, look at the data, or train in bfloat16, which needs no loss scale",
            )
        self.scale = max(self.scale / _FACTOR, self.minimum)

    def state(self) -> dict[str, float | int]:
        """Return what a checkpoint keeps."""
        return {"scale": self.scale, "good_steps": self._good, "hysteresis_left": self._left}

    def restore(self, state: Mapping[str, float | int]) -> None:
        """Go on from a checkpoint's state; a static scale is the configuration's."""
        if self.dynamic:
            self.scale = float(state["scale"])
            self._good = int(state["good_steps"])
            self._left = min(int(state["hysteresis_left"]), self.hysteresis)
