"""Whom something other than a line of the log points to: a silence, how the job ended, the flight recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from hpcjob.logs.explain.verdict import Quote


class Suspicion(msgspec.Struct, frozen=True):
    """A cause, and who is to blame.

    Attributes:
        exclude: whether the host is likely to be at fault itself.
        quotes: what shows it, beside the lines of the log.
    """

    code: int
    cause: str
    fix: str
    rank: int | None = None
    host: str | None = None
    ranks: list[int] = []
    exclude: bool = False
    quotes: list[Quote] = []
