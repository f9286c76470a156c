"""Whether a difference that was seen with several seeds is one: its mean, standard error and 95 % interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t that 95 % lie within, for 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class Paired:
    """Differences of pairs that share a seed, as fractions of the first of the pair."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.mean(self.values)

    @property
    def scatter(self) -> float:
        """Standard deviation of one; infinite where there is only one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else math.inf

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.scatter / math.sqrt(len(self.values))

    @property
    def reach(self) -> float:
        """Half the 95 % interval of the mean."""
        return self.error * _quantile(len(self.values))

    def verdict(self, bound: float | None) -> str:
        """Return in words what the interval says: of 0, and of a bound on the absolute difference."""
        if len(self.values) < 2:
            return f"{self.mean:+.3%} (n=1): one run decides nothing"
        low, high = self.mean - self.reach, self.mean + self.reach
        text = f"{self.mean:+.3%} +- {self.error:.3%} (n={len(self.values)}, one scatters by {self.scatter:.3%}; "
        text += f"95 %: {low:+.3%} to {high:+.3%}): "
        text += "no difference seen" if low <= 0 <= high else "higher" if low > 0 else "lower"
        if bound is None:
            return text
        if max(abs(low), abs(high)) <= bound:
            return f"{text}, within {bound:.1%}"
        if low > bound or high < -bound:
            return f"{text}, beyond {bound:.1%}"
        return f"{text}, undecided whether within {bound:.1%}{self._enough(bound)}"

    def _enough(self, bound: float) -> str:
        """Say how many seeds would decide, if mean and scatter stay as they are."""
        room = abs(bound - abs(self.mean))
        for count in range(len(self.values) + 1, 41):
            if self.scatter / math.sqrt(count) * _quantile(count) <= room:
                return f": about {count} seeds would tell"
        return ": not by 40 seeds"


def _quantile(count: int) -> float:
    return _QUANTILES[min(count - 1, len(_QUANTILES)) - 1]
