"""Errors that the run outlived: it came to its end after them, began anew and went on, or went on for long.

Programs print what they catch, servers are tried again, torchrun starts workers anew: of such an error the run did not
end, however bad it looks. Places in one file tell; of two files nobody knows what came first. That a few iterations
stand below an error is no proof: Python writes what it has printed when it ends, after the exception that ended it. Nor
are iterations of another rank, however many: a file may be the files of many ranks put together.
"""

from __future__ import annotations

from collections.abc import Hashable

_FAR_BYTES = 1024 * 1024
"""More than the buffers of all processes of a job that print iterations hold."""


class Lifetimes:
    """Where errors were last seen in each file, and where the run went on there."""

    def __init__(self) -> None:
        self._errors: dict[Hashable, dict[str, tuple[int, int | None]]] = {}
        self._iterated: dict[str, int] = {}
        self._iterated_by: dict[tuple[str, int | None], int] = {}
        self._restarted: dict[str, int] = {}
        self._finished: dict[str, int] = {}

    def error(self, key: Hashable, source: str, offset: int, rank: int | None = None) -> None:
        """Take note of an error, by its kind."""
        self._errors.setdefault(key, {})[source] = offset, rank

    def iteration(self, source: str, offset: int, rank: int | None = None) -> None:
        """Take note of an iteration."""
        self._iterated[source] = max(offset, self._iterated.get(source, 0))
        self._iterated_by[source, rank] = max(offset, self._iterated_by.get((source, rank), 0))

    def restart(self, source: str, offset: int) -> None:
        """Take note that the processes are started anew."""
        self._restarted[source] = offset

    def finish(self, source: str, offset: int) -> None:
        """Take note that the training came to its end."""
        self._finished[source] = offset

    def outlived(self, key: Hashable) -> bool:
        """Whether the run went on after all errors of a kind."""
        places = self._errors.get(key, {})
        return bool(places) and all(self._went_on(source, *place) for source, place in places.items())

    def _went_on(self, source: str, offset: int, rank: int | None) -> bool:
        iterated = self._iterated.get(source, -1)
        restarted = self._restarted.get(source, -1)
        went_far = self._iterated_by.get((source, rank), -1) - offset > _FAR_BYTES
        return self._finished.get(source, -1) > offset or iterated > restarted > offset or went_far
