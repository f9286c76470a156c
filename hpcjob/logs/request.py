"""What is asked of ``hpcjob tail``."""

from __future__ import annotations

from typing import NamedTuple

from hpcjob.logs.filters import LineFilter


class Request(NamedTuple):
    """What the user asked for.

    Attributes:
        view: ``digest``, ``lines``, ``loss``, ``nccl`` or ``errors``.
        number: of items; None: as many as the view has by itself.
        everything: all of them.
    """

    view: str
    wanted: LineFilter
    number: int | None = None
    everything: bool = False
    follow: bool = False

    def limit(self, default: int | None) -> int | None:
        """Return how many items to show; None is all."""
        return None if self.everything else default if self.number is None else self.number
