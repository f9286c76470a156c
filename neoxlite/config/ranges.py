"""Intervals of numbers, in the usual notation: ``[0,1)`` holds 0 and not 1, ``(0,inf)`` everything above 0."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_NOTATION = re.compile(r"([\[(])([^,]+),([^,]+)([\])])")


@dataclass(frozen=True)
class Range:
    """An interval; an open end is not part of it."""

    low: float
    high: float
    low_is_open: bool
    high_is_open: bool

    @staticmethod
    def parse(text: str) -> Range:
        """Return the interval that ``text`` notes. Raises ValueError for anything else."""
        match = _NOTATION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an interval")
        return Range(float(match[2]), float(match[3]), match[1] == "(", match[4] == ")")

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.low_is_open else value >= self.low
        return above and (value < self.high if self.high_is_open else value <= self.high)

    @property
    def words(self) -> str:
        """``at least 1``, ``from 0 to 1``, ``greater than 0 and at most 1,000``."""
        low = f"{'greater than' if self.low_is_open else 'at least'} {_number(self.low):,}"
        if math.isinf(self.high):
            return low
        if not self.low_is_open and not self.high_is_open:
            return f"from {_number(self.low):,} to {_number(self.high):,}"
        return f"{low} and {'less than' if self.high_is_open else 'at most'} {_number(self.high):,}"

    @property
    def json_schema(self) -> dict[str, float]:
        """The keywords of JSON Schema that say the same."""
        keywords = {"exclusiveMinimum" if self.low_is_open else "minimum": self.low}
        if not math.isinf(self.high):
            keywords["exclusiveMaximum" if self.high_is_open else "maximum"] = self.high
        return {word: _number(limit) for word, limit in keywords.items()}


def _number(limit: float) -> float:
    return int(limit) if limit.is_integer() else limit
