"""Exact values beside the log: the trainer's ``metrics.jsonl``, and the sequence length (tokens = samples x that)."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from hpcjob.logs.events import Iteration
from hpcjob.logs.file_tail import FileTail
from hpcjob.logs.lazy import lazy
from hpcjob.logs.sources import Source

_RECENT_BYTES = 1024 * 1024
_ITERATIONS_KEPT = 100_000
_HEAD_BYTES = 1024 * 1024
_SEQUENCE_LENGTH = lazy(r"\bseq_length \.{2,200} ?(\d{1,9})")
_ARGUMENT = b"seq_length ."
_ARGUMENT_BYTES = 256


class _Record(msgspec.Struct, frozen=True):
    """One logged iteration; other keys are left aside, and so are lines with ``event``, such as a validation's."""

    iteration: int
    event: str | None = None
    train_iters: int | None = None
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    iteration_time_ms: float | None = None
    tflops: float | None = None
    loss_scale: float | None = None
    skipped: int | None = None
    time: str | None = None


_DECODER = msgspec.json.Decoder(_Record)


class Metrics:
    """Fills what a log line does not tell.

    Args:
        path: ``metrics.jsonl``; it need not exist.
        whole: read all of it, not only its last MiB.
    """

    def __init__(self, path: Path | None, *, whole: bool = False) -> None:
        self.sequence_length: float | None = None
        self._whole = whole
        self._records: dict[int, _Record] = {}
        self._order: deque[int] = deque()
        self._tail: FileTail | None = None
        self.take_from(path)

    def take_from(self, path: Path | None) -> None:
        """Read this file from now on, such as that of the next job of the run."""
        if self._tail is not None:
            self._tail.close()
        self._tail = None if path is None else FileTail(Source(path))
        if self._tail is not None and not self._whole:
            self._tail.seek(max(0, self._tail.size() - _RECENT_BYTES))

    def poll(self) -> None:
        """Read what was appended; damaged lines are left out."""
        if self._tail is None:
            return
        for line in self._tail.poll():
            try:
                record = _DECODER.decode(line.text)
            except msgspec.DecodeError:
                continue
            if record.event is not None:
                continue
            if record.iteration not in self._records:
                self._order.append(record.iteration)
            self._records[record.iteration] = record
            if len(self._order) > _ITERATIONS_KEPT:
                del self._records[self._order.popleft()]
            if record.tokens_per_s and record.samples_per_s:
                self.sequence_length = record.tokens_per_s / record.samples_per_s

    def time_of(self, event: Iteration) -> str | None:
        """Return when the trainer logged an iteration, ISO 8601 with zone."""
        record = None if event.iteration is None else self._records.get(event.iteration)
        return None if record is None else record.time

    def fill(self, event: Iteration) -> Iteration:
        """Return the event with what the file or the sequence length add; what the line says stays."""
        if event.iteration is None:
            return event
        if event.iteration not in self._records:
            self.poll()
        record = self._records.get(event.iteration)
        missing: dict[str, Any] = {}
        if record is not None:
            missing = {
                name: value
                for name, value in msgspec.structs.asdict(record).items()
                if value is not None and name != "loss" and getattr(event, name) is None
            }
        rate = missing.get("samples_per_s", event.samples_per_s)
        if "tokens_per_s" not in missing and event.tokens_per_s is None and rate and self.sequence_length:
            missing["tokens_per_s"] = round(rate * self.sequence_length, 6)
        return msgspec.structs.replace(event, **missing) if missing else event


def sequence_length(text: str) -> int | None:
    """Find the sequence length in the list of arguments that GPT-NeoX and Megatron print at the start of a log."""
    match = _SEQUENCE_LENGTH.search(text)
    return None if match is None else int(match[1])


def sequence_length_of(path: Path) -> int | None:
    """Look for the sequence length in the first MiB of a log."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    place = head.find(_ARGUMENT)
    while place >= 0:
        found = sequence_length(head[place : place + _ARGUMENT_BYTES].decode("utf-8", errors="replace"))
        if found is not None and not head[max(0, place - 1) : place].isalnum():
            return found
        place = head.find(_ARGUMENT, place + 1)
    return None
