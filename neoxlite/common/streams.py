"""The standard streams of a command: what becomes of text that they cannot take, and of output that is lost.

A command speaks UTF-8 whatever the locale: a character that another encoding lacks is written as ``\\u5b9f``. A closed
stream is as /dev/null. A message on stderr that cannot be written is dropped: it must not stop what it tells of.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT = "standard output"


class _Output(io.FileIO):
    """Descriptor 1. Its errors name it; once it is `outlived` the first is kept, and the command goes on."""

    outlived = False
    lost: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """See `io.FileIO.write`."""
        if self.lost is None:
            try:
                return super().write(data)
            except OSError as error:
                told = OSError(error.errno, error.strerror, STANDARD_OUTPUT)
                if not self.outlived:
                    raise told from None
                self.lost = told
        return memoryview(data).nbytes


class _Messages(io.FileIO):
    """Descriptor 2."""

    def write(self, data: ReadableBuffer, /) -> int:
        """See `io.FileIO.write`."""
        with contextlib.suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


_output: _Output | None = None


def prepare() -> None:
    """Put the streams of this process in order; once, before anything is read or written.

    Where file names are not taken for UTF-8 (``LC_ALL=ja_JP.eucJP``), Python starts again in its UTF-8 mode.
    """
    global _output
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.executable:
        _start_again("-X", "utf8")
    for number in range(3):
        _ensure_open(number)
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - it stays
    _output = _Output(1, "w", closefd=False)
    sys.stdout = _text(_output, sys.stdout, line_buffering=False)
    sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr, line_buffering=True)


def _start_again(*options: str) -> None:
    """Become this program anew, with options of Python; by its bytes, which not all encodings give back."""
    arguments = Path("/proc/self/cmdline").read_bytes().split(b"\0")[1:-1]
    os.execv(sys.executable, [os.fsencode(sys.executable), *map(os.fsencode, options), *arguments])  # noqa: S606


def _ensure_open(number: int) -> None:
    """Open a closed descriptor, so that no file of ours gets its number."""
    try:
        os.fstat(number)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number


def _text(raw: io.FileIO, before: TextIO | None, *, line_buffering: bool) -> io.TextIOWrapper:
    """Return the text layer that was there before, over ``raw``."""
    unbuffered = getattr(before, "write_through", False)  # PYTHONUNBUFFERED
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors="backslashreplace",
        line_buffering=getattr(before, "line_buffering", line_buffering),
        write_through=unbuffered,
    )


def outlive() -> None:
    """Go on from here where standard output cannot be written: the command does more than print."""
    if _output is not None:
        _output.outlived = True


def lost() -> OSError | None:
    """Return why an `outlived` standard output could not be written; None: all was."""
    if _output is not None and _output.outlived:
        sys.stdout.flush()
    return None if _output is None else _output.lost


def finish() -> OSError | None:
    """Write out what standard output still holds; return the error that it ended with, if it did."""
    try:
        sys.stdout.flush()
    except OSError as error:
        drop_output()
        return error
    return lost()


def drop_output() -> None:
    """Point standard output at nothing: what it holds has no reader, and the interpreter's own flush is quiet."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reader_left(error: OSError) -> bool:
    """Whether nobody reads any more (``| head``), which is no fault."""
    return error.errno == errno.EPIPE
