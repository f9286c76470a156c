"""Which of the known names a mistyped one may have meant."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_SLIPS = 3
_SHORTEST_BEGINNING = 3


def near(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the names of ``known`` that are like ``name``, the most like first; none is better than an unlike one.

    Like is what is one slip in three characters away, at most three in all (a character too many, too few, another, or
    two swapped), or begins alike: one is the beginning of the other. Capitals, ``-`` and ``_`` do not count.
    """
    wanted = _plain(name)
    found = [(_slips(wanted, _plain(other)), other) for other in dict.fromkeys(known)]
    found = [(slips, other) for slips, other in found if _is_like(wanted, _plain(other), slips)]
    return [other for _, other in sorted(found)[:most]]


def did_you_mean(name: str, known: Iterable[str], most: int = 3) -> str | None:
    """Return ``did you mean A or B?``; None where nothing is like ``name``."""
    found = near(name, known, most)
    return f"did you mean {' or '.join(found)}?" if found else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _is_like(one: str, other: str, slips: int) -> bool:
    shorter, longer = sorted((one, other), key=len)
    begins = len(shorter) >= _SHORTEST_BEGINNING and longer.startswith(shorter)
    return begins or slips <= min(max(len(one), len(other)) // 3, _MOST_SLIPS)


def _slips(one: str, other: str) -> int:
    """Return how many slips lead from one text to the other (the distance of Damerau and Levenshtein)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, char in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, letter in enumerate(other, 1):
            slips = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (char != letter))
            if last and j > 1 and char == other[j - 2] and one[i - 2] == letter:
                slips = min(slips, last[j - 2] + 1)
            row.append(slips)
    return row[-1]
