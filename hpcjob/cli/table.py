"""Aligned columns of plain text, folded where a terminal is narrower."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from neoxlite.common.printable import printable

_GAP = "  "
_LEAST = 12  # columns to which a cell is folded at most


def print_table(
    rows: Sequence[Mapping[str, Any]],
    *,
    hide: Collection[str] = (),
    fold: Collection[str] = (),
    paint: Callable[[str, str, int], str] | None = None,
) -> None:
    """Print ``rows`` under their keys, a column a key; None prints as ``-``. The keys are those of the first row.

    A hostile name must not steer the terminal: what is not shown is escaped.

    Args:
        fold: columns whose cells go on in the next line where a terminal is narrower than the table. What is no
            terminal gets a line a row.
        paint: from column, padded cell and number of the row to the cell with colours.
    """
    if not rows:
        return
    columns = [key for key in rows[0] if key not in hide]
    cells = [[key.upper() for key in columns]]
    cells += [["-" if row[key] is None else printable(str(row[key])) for key in columns] for row in rows]
    widths = [max(display_width(line[column]) for line in cells) for column in range(len(columns))]
    if sys.stdout.isatty():
        _narrow(widths, [number for number, key in enumerate(columns) if key in fold])
    for number, row in enumerate(cells):
        parts = [list(folded(cell, width)) for cell, width in zip(row, widths, strict=True)]
        for line in zip_longest(*parts, fillvalue=""):
            padded = [cell + " " * (width - display_width(cell)) for cell, width in zip(line, widths, strict=True)]
            padded[-1] = padded[-1].rstrip()
            if paint and number:
                padded = [paint(column, cell, number - 1) for column, cell in zip(columns, padded, strict=True)]
            print(_GAP.join(padded).rstrip())


def _narrow(widths: list[int], foldable: Sequence[int]) -> None:
    """Take columns from the widest of ``foldable`` until the terminal holds them all, or none has any to give."""
    room = shutil.get_terminal_size().columns - len(_GAP) * (len(widths) - 1)
    while sum(widths) > room and foldable:
        widest = max(foldable, key=widths.__getitem__)
        if widths[widest] <= _LEAST:
            return
        widths[widest] -= 1


def folded(text: str, width: int) -> Iterator[str]:
    """Yield ``text`` in lines of at most ``width`` columns, broken between words; in a word that is longer than a line.

    Args:
        width: at least 2, the columns of one wide character.
    """
    while display_width(text) > width:
        end = _fitting(text, width)
        space = text.rfind(" ", 0, end + 1)
        end = space if space > 0 else end
        yield text[:end].rstrip()
        text = text[end:].lstrip()
    yield text


def _fitting(text: str, width: int) -> int:
    """Return how many characters of ``text`` fill at most ``width`` columns."""
    used = 0
    for number, character in enumerate(text):
        used += display_width(character)
        if used > width:
            return number
    return len(text)


def display_width(text: str) -> int:
    """Return the number of terminal columns of ``text``: two for each wide (Japanese, ...) character."""
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text)
