"""Pipes and devices whose line never ends, such as ``/dev/zero``, are no logs: reading them would never end either."""

from __future__ import annotations

from hpcjob.errors import InputError

LINE_AT_MOST_BYTES = 256 * 1024 * 1024
"""Beyond what any program writes: a bar of tqdm's has parts, and a line of a log is cut long before."""


class EndlessGuard:
    """Sees the bytes of a pipe or device as they come.

    Args:
        name: what to call it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._since = 0

    def see(self, chunk: bytes) -> None:
        """Take note of the next bytes. Raises InputError where a line has not ended for too long."""
        if b"\n" in chunk or b"\r" in chunk:
            self._since = 0
            return
        self._since += len(chunk)
        if self._since > LINE_AT_MOST_BYTES:
            raise InputError(
                f"{self._name}: no end of a line in {LINE_AT_MOST_BYTES / 2**20:,.0f} MiB",
                hint="this is not a log: name a log file, or pipe text into '-'",
            )
