"""Saving beside training: the state is copied to host memory, and a thread writes it while training goes on.

A save stops training for the copy only; on a GPU not even for that: the copy engine works on a stream of its own beside
forward and backward, and the optimizer's next step waits on the device for its end. What the thread does is
`neoxlite.checkpoint.save.write`, so that nothing differs on the disk: whole or not at all, ``latest`` last. The ranks'
threads agree in a process group of their own, which no collective of training can meet.

Memory: each rank keeps host buffers of the size of its share of the checkpoint from the first save on (on a GPU
pinned, where the allocator rounds each tensor up to a power of two): 14 bytes a parameter of the model in bfloat16,
12 in fp32, divided by the data-parallel ranks.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from neoxlite.checkpoint.save import Contents, Together, write
from neoxlite.checkpoint.share import TensorFile, share_of

# A slow file system is no reason to give up; a dead rank is noticed by `neoxlite.parallel.watch`.
_TIMEOUT = datetime.timedelta(hours=6)


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is on the disk."""

    iteration: int
    folder: Path
    seconds: float
    """From the copy to the last rename."""


class BackgroundSaver:
    """Saves one checkpoint at a time behind training's back; every rank makes one, and calls each method together.

    Args:
        on_disk: called in the writing thread with the folder of each checkpoint that is on the disk, before older ones
            are removed.
    """

    def __init__(self, engine: Any, on_disk: Callable[[Path], None] = lambda folder: None):
        world_size = engine.topology.grid.world_size
        group = dist.new_group(backend="gloo", timeout=_TIMEOUT) if world_size > 1 else None
        self._engine = engine
        self._on_disk = on_disk
        self._together = Together(engine.topology, group)
        self._copies = HostCopies(engine.device)
        if engine.device.type == "cuda":
            _before_each_step(engine.optimizer, self._copies.hold)
        self._thread: threading.Thread | None = None
        self._done: list[Saved] = []
        self._error: BaseException | None = None

    @property
    def failed(self) -> bool:
        """Whether a save has failed; `wait` raises its error. The ranks may see it at different iterations."""
        return self._error is not None

    @property
    def bytes(self) -> int:
        """Host memory of the copies, in bytes."""
        return self._copies.bytes

    def start(self, root: Path, contents: Contents, *, keep_last: int | None = None) -> None:
        """Copy the state and write it in the background; waits first for the save before this one.

        Raises:
            CheckpointError: that one could not be written.
        """
        self.wait()
        began = time.monotonic()
        files = self._copies.take(share_of(self._engine, with_optimizer=contents.with_optimizer))
        arguments = (root, files, contents, keep_last, began, self._copies.ready)
        # A daemon: `close` waits for it; a process that is made to end at once does not.
        self._thread = threading.Thread(target=self._write, args=arguments, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is being written. Raises CheckpointError, the same on every rank, if a save failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def finished(self) -> list[Saved]:
        """Return the checkpoints that reached the disk since the last call; does not wait."""
        done = []
        while self._done:
            done.append(self._done.pop(0))
        return done

    @property
    def is_writing(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Let the save under way come to its end, whatever that is."""
        if self._thread is not None:
            self._thread.join()

    def _write(
        self,
        root: Path,
        files: list[TensorFile],
        contents: Contents,
        keep_last: int | None,
        began: float,
        ready: torch.cuda.Event | None,
    ) -> None:
        with contextlib.suppress(OSError):  # on Linux a thread has a priority of its own; training's cores come first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        try:
            if ready is not None:
                ready.synchronize()
            folder = write(root, self._together, files, contents, keep_last=keep_last, on_disk=self._on_disk)
            self._done.append(Saved(int(contents.training["iteration"]), folder, time.monotonic() - began))
        except BaseException as error:  # raised again in the main thread
            self._error = error


def _before_each_step(optimizer: Any, act: Callable[[], None]) -> None:
    """Call ``act`` before ``optimizer.step``, through which every engine changes weights and optimizer state."""
    step = optimizer.step

    @functools.wraps(step)
    def stepped(*arguments: Any, **keywords: Any) -> Any:
        act()
        return step(*arguments, **keywords)

    optimizer.step = stepped


class HostCopies:
    """Copies of tensors in host memory that is kept from one save to the next."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers: dict[tuple[str, str], Tensor] = {}
        self.ready: torch.cuda.Event | None = None
        """When the copies of the last `take` are whole; None: they are."""

    @property
    def bytes(self) -> int:
        """Size of the buffers, in bytes."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def take(self, files: Iterable[TensorFile]) -> list[TensorFile]:
        """Return ``files`` with copies; on a GPU they are under way, and the tensors must not change before `hold`."""
        copied = []
        for file in files:
            tensors = {key: self._buffer((file.name, key), tensor) for key, tensor in file.tensors.items()}
            with self._beside():
                for key, tensor in file.tensors.items():
                    tensors[key].copy_(tensor.detach(), non_blocking=True)
                    if self._stream is not None and tensor.is_cuda:
                        tensor.record_stream(self._stream)  # what was gathered for the copy is freed after it
            copied.append(TensorFile(file.name, tensors))
        if self._stream is not None:
            self.ready = self._stream.record_event()
        return copied

    def hold(self) -> None:
        """Let what is issued from now on wait, on the device, until the copies are whole."""
        if self.ready is not None:
            torch.cuda.current_stream(self._device).wait_event(self.ready)

    def _beside(self) -> contextlib.AbstractContextManager[Any]:
        """Issue a block's work on the stream of the copies, behind what has been issued so far."""
        if self._stream is None:
            return contextlib.nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._stream)

    def _buffer(self, name: tuple[str, str], like: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != like.shape or buffer.dtype != like.dtype:
            buffer = torch.empty(like.shape, dtype=like.dtype, device="cpu", pin_memory=like.is_cuda)
            self._buffers[name] = buffer
        return buffer
