"""Aligned columns of plain text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any


def print_table(
    rows: Sequence[Mapping[str, Any]],
    *,
    hide: Collection[str] = (),
    paint: Callable[[str, str], str] | None = None,
) -> None:
    """Print ``rows`` under their keys, a column a key; None prints as ``-``. The keys are those of the first row.

    Args:
        paint: from column and padded cell to the cell with colours.
    """
    if not rows:
        return
    columns = [key for key in rows[0] if key not in hide]
    cells = [[key.upper() for key in columns]]
    cells += [["-" if row[key] is None else str(row[key]) for key in columns] for row in rows]
    widths = [max(display_width(line[column]) for line in cells) for column in range(len(columns))]
    for number, line in enumerate(cells):
        padded = [cell + " " * (width - display_width(cell)) for cell, width in zip(line, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        if paint and number:
            padded = [paint(column, cell) for column, cell in zip(columns, padded, strict=True)]
        print("  ".join(padded).rstrip())


def display_width(text: str) -> int:
    """Return the number of terminal columns of ``text``: two for each wide (Japanese, ...) character."""
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text)
