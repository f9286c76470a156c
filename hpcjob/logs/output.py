"""Where views write: plain text, colours on a terminal, or one JSON object a line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import msgspec

from hpcjob.logs.events import Event

if TYPE_CHECKING:
    from hpcjob.logs.explain.verdict import Verdict

_STYLES = {
    "cause": "bold red",
    "symptom": "red",
    "warning": "yellow",
    "follower": "dim",
    "header": "bold",
    "validation": "cyan",
    "status": "bold",
}
_HEADER_ROWS_LEFT = 4
_BETWEEN = "  "


class Output:
    """Text lines, or events as JSON.

    Args:
        stream: where to write.
        json: write events only, one a line.

    Attributes:
        written: how many lines were written.
    """

    def __init__(self, stream: TextIO, *, json: bool = False) -> None:
        self.json = json
        self.written = 0
        self._stream = stream
        self.terminal = stream.isatty() and not json

    @property
    def rows_between_headers(self) -> int | None:
        """How many rows fit on the screen under one header; None where the header stands once."""
        if not self.terminal:
            return None
        import shutil

        return max(5, shutil.get_terminal_size().lines - _HEADER_ROWS_LEFT)

    def text(self, text: str, style: str = "") -> None:
        """Write a line; ``style`` is a role, or empty."""
        self.written += 1
        self._stream.write(text + "\n")

    def event(self, event: Event | Verdict) -> None:
        """Write an event as JSON."""
        self.written += 1
        self._stream.write(msgspec.json.encode(event).decode() + "\n")

    def status(self, fields: Sequence[str]) -> None:
        """Keep a line at the bottom, on a terminal: as many fields as fit, the first ones first."""

    def settle(self) -> None:
        """Nothing more comes: leave the status as an ordinary line."""

    def flush(self) -> None:
        """Let all be seen."""
        self._stream.flush()


class TerminalOutput(Output):
    """Text in colours, by rich, which also heeds NO_COLOR and dumb terminals."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        super().__init__(stream)
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)

        self._live = os.environ.get("TERM", "dumb") not in ("dumb", "")
        self._fields: Sequence[str] = ()
        self._drawn = ""

    def status(self, fields: Sequence[str]) -> None:
        """Keep a line at the bottom."""
        self._fields = fields

    def settle(self) -> None:
        """Leave the status as an ordinary line."""
        fields, self._fields = self._fields, ()
        if fields:
            self.text(self._fitting(fields), "status")
        self._stream.flush()

    def flush(self) -> None:
        """Let all be seen, the status too."""
        text = self._fitting(self._fields)
        if self._live and text != self._drawn:
            self._clear()
            self._stream.write(text)
            self._drawn = text
        self._stream.flush()

    def _fitting(self, fields: Sequence[str]) -> str:
        kept = list(fields)
        import shutil

        width = shutil.get_terminal_size().columns - 1
        while len(kept) > 1 and len(_BETWEEN.join(kept)) > width:
            kept.pop()
        return _BETWEEN.join(kept)[:width]

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._drawn = ""

    def text(self, text: str, style: str = "") -> None:
        """Write a line; ``style`` is a role, or empty."""
        self._clear()
        if style in _STYLES:
            self.written += 1
            self._console.print(text, style=_STYLES[style])
        else:
            super().text(text)


def open_output(stream: TextIO, *, json: bool) -> Output:
    """Return the output that fits the stream."""
    return TerminalOutput(stream) if stream.isatty() and not json else Output(stream, json=json)
