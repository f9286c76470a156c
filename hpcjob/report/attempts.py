"""Attempts of a run: stretches of iterations without a restart between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpcjob.report.tables import Table


@dataclass(frozen=True)
class Attempt:
    """Iterations between two starts of a run.

    Attributes:
        table: what its lines tell.
        start: iteration of the checkpoint that it loaded, if the log tells.
        loaded: path of that checkpoint, if the log tells.
        saved: iteration of each checkpoint saved -> its path, if told.
        validations, tests: iteration -> loss on the validation data, on the test data.
        by_epoch: steps are millionths of an epoch.
        source: the log.
    """

    table: Table
    start: int | None = None
    loaded: str | None = None
    saved: dict[int, str | None] = field(default_factory=dict)
    validations: dict[int, float] = field(default_factory=dict)
    tests: dict[int, float] = field(default_factory=dict)
    by_epoch: bool = False
    source: str = ""

    @property
    def first(self) -> int:
        """Its first step."""
        return int(self.table.steps[0])

    @property
    def last(self) -> int:
        """Its last step."""
        return int(self.table.steps[-1])

    @property
    def interval(self) -> int | None:
        """Steps between its first two rows: how often it logs; None of one row."""
        return int(self.table.steps[1]) - self.first if len(self.table) > 1 else None

    @property
    def known_start(self) -> int | None:
        """Iteration of the checkpoint that it loaded, if that can be."""
        return self.start if self.start is not None and self.start < self.first else None

    def begins(self, interval: int) -> int:
        """Return how many iterations were done before it; where that is not told, by its first row and its interval.

        Args:
            interval: steps between rows, for an attempt of one row.
        """
        if self.known_start is not None:
            return self.known_start
        return self.first - 1 if self.by_epoch else max(0, self.first - (self.interval or interval))


@dataclass(frozen=True)
class Log:
    """What the logs of one job tell, and what was left out of them, in words."""

    attempts: list[Attempt]
    notes: list[str] = field(default_factory=list)
