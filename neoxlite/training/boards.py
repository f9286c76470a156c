"""Numbers by GPT-NeoX's tags, for TensorBoard and Weights & Biases (megatron/logging.py at ea7aefd8, training_log).

Tags of GPT-NeoX: ``train/learning_rate``, ``train/lm_loss``, ``train/loss_scale`` (fp16), each iteration; ``runtime/*``
and ``timers/*`` each log interval; ``validation/*``. Ours in addition: ``train/grad_norm``, ``test/*``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Protocol

from neoxlite.errors import NeoxliteError

Scalars = Mapping[int, Mapping[str, float]]
"""Iteration -> tag -> value."""


class Board(Protocol):
    """A place that shows numbers over iterations."""

    def log(self, scalars: Scalars) -> None:
        """Record values of one or more iterations, ascending."""

    def close(self) -> None:
        """Send what is still held back."""


class TensorBoard:
    """Writes TensorBoard's event files to ``folder``.

    Args:
        start: iteration of the checkpoint that is resumed; what an earlier run wrote behind it is no longer shown.

    Raises:
        NeoxliteError: tensorboard is not installed, or the folder cannot be written.
    """

    def __init__(self, folder: str, start: int):
        try:
            with warnings.catch_warnings():
                # tensorboard's protobuf and distutils notices are not the user's to act on.
                warnings.simplefilter("ignore")
                from torch.utils.tensorboard import SummaryWriter

                self._writer: Any = SummaryWriter(log_dir=folder, purge_step=start + 1 if start else None)
        except ImportError:
            raise NeoxliteError(
                "tensorboard_dir is set, but tensorboard is not installed", hint="pip install tensorboard"
            ) from None
        except OSError as error:
            raise NeoxliteError(
                f"tensorboard_dir: {folder} cannot be written: {error.strerror}", hint="give another folder"
            ) from None

    def log(self, scalars: Scalars) -> None:
        """Record values of one or more iterations."""
        for iteration, values in scalars.items():
            for tag, value in values.items():
                self._writer.add_scalar(tag, value, iteration)
        self._writer.flush()

    def close(self) -> None:
        """Write what is still held back, and close the file."""
        self._writer.close()
