"""The shape of a line: what is left of it without what varies between lines that say the same."""

from __future__ import annotations

_DROPPED = b"0123456789abcdef.+- "


def shape(data: bytes) -> bytes:
    """Return a line or text without digits, the letters a to f (of addresses), signs, points and spaces.

    If a text is part of a line, its shape is part of the line's.
    """
    return data.translate(None, _DROPPED)
