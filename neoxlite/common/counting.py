"""Numbers of things in messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return ``1 document``, ``2,000 documents``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
