"""Durations and sizes as people write them, and as schedulers read them."""

from __future__ import annotations

import re

from hpcjob.errors import InputError

_H, _M, _S = r"(?P<h>\d{1,2})", r"(?P<m>[0-5]?\d)", r"(?P<s>[0-5]?\d)"
_CLOCKS = [
    re.compile(rf"(?P<d>\d{{1,3}})-{_H}(?::{_M}(?::{_S})?)?"),  # as Slurm reads it
    re.compile(rf"(?P<d>\d{{1,3}}):{_H}:{_M}:{_S}"),  # as Grid Engine does
    re.compile(rf"(?P<h>\d{{1,5}}):{_M}:{_S}"),
    re.compile(rf"(?P<m>\d{{1,5}}):{_S}"),
]
_WORDS = re.compile(r"(?:(?P<d>\d{1,9})d)?\s*(?:(?P<h>\d{1,9})h)?\s*(?:(?P<m>\d{1,9})m(?:in)?)?\s*(?:(?P<s>\d{1,9})s)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_MOST_GIB = 2.0**30
_GIB_PER = {"": 1 / 2**30, "K": 1 / 2**20, "M": 1 / 2**10, "G": 1.0, "T": 2.0**10}


def parse_walltime_s(value: str | int, key: str = "walltime") -> int:
    """Return a walltime in seconds.

    Args:
        value: seconds as a number; ``HH:MM:SS``, ``MM:SS``, ``D-HH``, ``D-HH:MM``, ``D-HH:MM:SS`` or ``D:HH:MM:SS``; or
            ``1d12h``, ``90m``.
        key: the name to use in the error.

    Raises:
        InputError: the text is no duration, or the duration is not positive.
    """
    seconds = value if isinstance(value, int) else seconds_of(value.strip())
    if seconds is None or seconds <= 0:
        raise InputError(
            f"{key}: {value!r} is not a duration",
            hint="write HH:MM:SS (for example 12:00:00), D-HH:MM:SS, 90m, 2h, 1d12h, or a number of seconds",
        )
    return seconds


def seconds_of(text: str) -> int | None:
    """Return a duration as schedulers and people write it, in seconds; None: it is none, such as ``UNLIMITED``."""
    if re.fullmatch("[0-9]{1,12}", text):
        return int(text)
    for pattern in (*_CLOCKS, _WORDS):
        if text.isascii() and (match := pattern.fullmatch(text)):
            part = match.groupdict(default="0")
            days, hours, minutes, seconds = (int(part.get(unit, "0")) for unit in "dhms")
            return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return None


def format_clock(seconds: int) -> str:
    """Return ``HH:MM:SS``; hours may pass 99 (PBS, Grid Engine and PJM read that)."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def parse_memory_gib(value: str | int | float, key: str = "memory") -> float:
    """Return a memory size in GiB. ``GB`` is read as GiB, as the schedulers do.

    Raises:
        InputError: the text is no size, has no unit (Slurm takes a bare number for MiB, PBS for bytes, people for GiB),
            or the size is not positive or above an EiB.
    """
    text = str(value).strip()
    match = _SIZE.fullmatch(text)
    size_gib = float(match[1]) * _GIB_PER[match[2].upper()] if match else 0.0
    if not 0 < size_gib <= _MOST_GIB:
        raise InputError(f"{key}: {value!r} is not a memory size", hint="write for example 480G, 64GiB or 1.5T")
    if text[-1].isdigit():
        raise InputError(
            f"{key}: {value!r} has no unit, and each scheduler has its own",
            hint=f"write {text}G for GiB, {text}M for MiB",
        )
    return size_gib
