"""metrics.jsonl: one JSON object a line, appended and never rewritten. Imports no torch. Fields: docs/training.md."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class MetricsFile:
    """Appends entries to ``path``; each is handed to the kernel whole, so that a killed run leaves its last one.

    A resumed run appends to the same file, behind an entry with ``event: start``. A file that cannot be written costs
    one warning, not the run.
    """

    def __init__(self, path: Path, say: Callable[[str], None]):
        self._path = path
        self._say = say
        self._handle: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._end_torn_line(self._handle)
        except OSError as error:
            self._give_up(error)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append an entry, with the time; numbers that are not finite become null, for which JSON has no other word."""
        if self._handle is None:
            return
        timed = {**entry, "time": datetime.datetime.now().astimezone().isoformat()}
        line = json.dumps(_finite(timed), ensure_ascii=False, allow_nan=False) + "\n"
        try:
            _write_all(self._handle, line.encode())
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _end_torn_line(self, handle: int) -> None:
        """End a line that a crash of the machine or a full disk has cut, so that the next entry has its own."""
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            os.write(handle, b"\n")

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._say(f"WARNING: {self._path} cannot be written, training continues without it: {error.strerror}")


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
