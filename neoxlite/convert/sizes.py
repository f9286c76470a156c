"""Sizes for people."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(nbytes: int) -> str:
    """Return a size in the unit that fits it: 12.3 GiB."""
    power = min(len(_UNITS) - 1, max(0, nbytes.bit_length() - 1) // 10)
    return f"{nbytes / 1024**power:.{1 if power else 0}f} {_UNITS[power]}"


def size_texts(*sizes: int) -> list[str]:
    """Return sizes that differ as texts that differ: to the byte where their units hide it."""
    texts = [size_text(size) for size in sizes]
    return texts if len(set(texts)) == len(set(sizes)) else [f"{size:,} bytes" for size in sizes]
