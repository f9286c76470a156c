"""A log that cannot be written (a full disk or quota, a pipe that nobody reads) costs one warning, not the run."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


class UnfailingStream(io.TextIOBase):
    """Writes to ``inner``; lines that it does not take are dropped, and those after them tried again."""

    def __init__(self, inner: TextIO):
        self._inner = inner
        self._warned = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def write(self, text: str) -> int:
        try:
            self._inner.write(text)
        except OSError as error:
            self._drop(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._inner.flush()
        except OSError as error:
            self._drop(error)

    def fileno(self) -> int:
        return self._inner.fileno()

    def isatty(self) -> bool:
        return self._inner.isatty()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override] # a plain attribute in the base class
        return self._inner.encoding

    def _drop(self, error: OSError) -> None:
        """Throw away what ``inner`` holds back, which it would fail on again, and warn the first time."""
        with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nothing:
            descriptor = self._inner.fileno()
            kept = os.dup(descriptor)
            try:
                os.dup2(nothing.fileno(), descriptor)
                self._inner.flush()
            finally:
                os.dup2(kept, descriptor)
                os.close(kept)
        if not self._warned:
            self._warned = True
            with contextlib.suppress(OSError):
                text = f"WARNING: the log (standard output) cannot be written: {error.strerror}; the run continues"
                print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def unfailing_stdout() -> Iterator[None]:
    """Put an `UnfailingStream` before standard output while the block runs; nothing where it is closed."""
    if sys.stdout is None:
        yield
        return
    stream = UnfailingStream(sys.stdout)
    with contextlib.redirect_stdout(stream):
        try:
            yield
        finally:
            stream.flush()
