"""Numbers by GPT-NeoX's tags, for TensorBoard and Weights & Biases (megatron/logging.py at ea7aefd8, training_log).

Tags of GPT-NeoX: ``train/learning_rate``, ``train/lm_loss``, ``train/loss_scale`` (fp16), each iteration; ``runtime/*``
and ``timers/*`` each log interval; ``validation/*``. Ours in addition: ``train/grad_norm``, ``test/*``.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from neoxlite.errors import NeoxliteError
from neoxlite.training.outcome import one_line

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

    A folder that cannot be written any more, as on a full disk, costs one warning, not the run.

    Args:
        start: iteration of the checkpoint that is resumed; what an earlier run wrote behind it is no longer shown.
        say: prints a line.

    Raises:
        NeoxliteError: tensorboard cannot be imported, or the folder cannot be written.
    """

    def __init__(self, folder: str, start: int, say: Callable[[str], None]):
        self._folder = folder
        self._say = say
        make = _summary_writer()
        _quiet_threads()
        try:
            self._writer: Any = make(log_dir=folder, purge_step=start + 1 if start else None)
        except OSError as error:
            raise NeoxliteError(
                f"tensorboard_dir: {folder} cannot be written: {error.strerror or error}", hint="give another folder"
            ) from None

    def log(self, scalars: Scalars) -> None:
        """Record values of one or more iterations."""
        self._write(lambda writer: _add(writer, scalars))

    def close(self) -> None:
        """Write what is still held back, and close the file."""
        self._write(lambda writer: writer.close())

    def _write(self, work: Callable[[Any], None]) -> None:
        if self._writer is None:
            return
        try:
            work(self._writer)
        except OSError as error:
            # Of the thread that writes, which has ended: the writer is of no more use, nor can it be closed.
            self._writer = None
            self._say(
                f"WARNING: {self._folder} cannot be written, training continues without it: {error.strerror or error}"
            )


def _summary_writer() -> Callable[..., Any]:
    with warnings.catch_warnings():
        # tensorboard's protobuf and distutils notices are not the user's to act on.
        warnings.simplefilter("ignore")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except Exception as error:  # with a release of protobuf or numpy that it was not made for it raises anything
            raise NeoxliteError(
                f"tensorboard_dir is set, but tensorboard cannot be imported ({one_line(error)})",
                hint="pip install tensorboard, or omit tensorboard_dir",
            ) from error
    make: Callable[..., Any] = SummaryWriter
    return make


@functools.cache
def _quiet_threads() -> None:
    """Keep Python from printing a traceback when tensorboard's thread cannot write: `TensorBoard` says it in a line."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs, /) -> None:
        is_told = issubclass(args.exc_type, OSError) and type(args.thread).__module__.startswith("tensorboard.")
        if not is_told:
            before(args)

    threading.excepthook = hook


def _add(writer: Any, scalars: Scalars) -> None:
    for iteration, values in scalars.items():
        for tag, value in values.items():
            writer.add_scalar(tag, value, iteration)
    writer.flush()
