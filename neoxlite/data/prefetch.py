"""Work that a thread does ahead."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")
_POLL_S = 0.05


class Prefetched(Iterator[T], Generic[T]):
    """Items of an iterable, taken from it by a thread up to ``depth`` items ahead.

    A context manager: leaving it ends the thread. An error of the iterable is raised where the item is asked for.

    Args:
        items: read by the thread only.
        depth: items held ready at most.

    Attributes:
        wait_s: seconds that the consumer has waited for items.
    """

    def __init__(self, items: Iterable[T], depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth {depth}")
        self.wait_s = 0.0
        self._ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(depth)
        self._stop = threading.Event()
        self._ended: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(items,), name="prefetch", daemon=True)
        self._thread.start()

    def __next__(self) -> T:
        """Return the next item, waiting for it. Raises what the iterable raises."""
        if self._ended is not None:
            raise self._ended
        try:
            is_item, value = self._ready.get_nowait()
        except queue.Empty:
            began = time.perf_counter()
            is_item, value = self._ready.get()
            self.wait_s += time.perf_counter() - began
        if is_item:
            return value  # type: ignore[return-value]
        self._ended = value if isinstance(value, BaseException) else StopIteration()
        raise self._ended

    def close(self) -> None:
        """End the thread and forget what it held ready."""
        self._stop.set()
        self._ended = self._ended or StopIteration()
        self._thread.join()

    def __enter__(self) -> Prefetched[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self, items: Iterable[T]) -> None:
        end: BaseException | None = None
        try:
            for item in items:
                if not self._put((True, item)):
                    return
        except BaseException as error:  # raised again in the consumer's thread
            end = error
        self._put((False, end))

    def _put(self, value: tuple[bool, T | BaseException | None]) -> bool:
        """Hand a value over; false where nobody wants it any more."""
        while not self._stop.is_set():
            try:
                self._ready.put(value, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False
