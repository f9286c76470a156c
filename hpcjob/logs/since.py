"""Times in logs: what ``--since`` means, and where in a file a time begins, found by halving."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from pathlib import Path

from hpcjob.errors import InputError
from hpcjob.logs.lazy import lazy

_SPAN = lazy(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?:in)?)?(?:(\d{1,8})s)?")
_STAMP = (
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[T _](?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:[.,](?P<part>\d{1,6})\d{0,3})?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_IN_TEXT = lazy(_STAMP)
_IN_BYTES = lazy(_STAMP.encode())
_PROBE_BYTES = 64 * 1024
_PROBES_AT_MOST = 64
_PREFIX_CHARS = 160


def parse_since(text: str, now: datetime | None = None) -> float:
    """Return a time in seconds since the epoch: ``90s`` or ``90``, ``15m``, ``2h30m``, ``1d``, ``09:30``, a full time.

    A time of day is today's, or yesterday's if it is still to come.

    Raises:
        InputError: it is neither.
    """
    current = (now or datetime.now()).astimezone()
    text = text.strip()
    span = _SPAN.fullmatch(f"{text}s" if text.isdecimal() else text)
    if text and span is not None:
        days, hours, minutes, seconds = (int(group or 0) for group in span.groups())
        try:
            return (current - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)).timestamp()
        except OverflowError:
            return 0.0
    try:
        if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", text):
            day = datetime.fromisoformat(f"{current:%Y-%m-%d} {text.zfill(8 if text.count(':') == 2 else 5)}")
            moment = day.astimezone()
            return (moment if moment <= current else moment - timedelta(days=1)).timestamp()
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"--since {text!r} is not a time", hint="write 15m, 2h, 1d, 09:30 or 2026-11-29T09:30:00"
        ) from None


def time_in(text: str) -> float | None:
    """Return the first full time near a line's start, in seconds since the epoch; without a zone it is local."""
    match = _IN_TEXT.search(text, 0, _PREFIX_CHARS)
    return None if match is None else _seconds(match.groupdict())


def _seconds(found: dict[str, str | None]) -> float | None:
    zone = (found["zone"] or "").replace("Z", "+00:00")
    if len(zone) == 5:
        zone = f"{zone[:3]}:{zone[3:]}"
    text = "{year}-{month}-{day}T{hour}:{minute}:{second}".format_map(found)
    try:
        moment = datetime.fromisoformat(f"{text}.{(found['part'] or '0').ljust(6, '0')}{zone}")
        return moment.astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def offset_since(path: Path, since_s: float) -> int:
    """Return the byte of a log from which on its times are not before ``since_s``; 0 where it has no times.

    Times grow along a log; where they do not quite, a few lines more or less are given.
    """
    try:
        size = path.stat().st_size
        with path.open("rb", buffering=0) as file:
            return _search(file.fileno(), size, since_s)
    except OSError:
        return 0


def tells_times(path: Path) -> bool:
    """Whether a log has times, as far as its beginning shows."""
    try:
        with path.open("rb", buffering=0) as file:
            return _first_time(file.fileno(), 0, path.stat().st_size) is not None
    except OSError:
        return False


def _search(fd: int, size: int, since_s: float) -> int:
    low, high = 0, size  # what begins at low is early enough; all from high on is late enough
    for _ in range(_PROBES_AT_MOST):
        if high - low <= _PROBE_BYTES:
            break
        middle = (low + high) // 2
        found = _first_time(fd, middle, high)
        if found is None or found[1] >= since_s:
            high = middle
        else:
            low = found[0]
    return low


def _first_time(fd: int, start: int, end: int) -> tuple[int, float] | None:
    """Return the place and value of the first time in a part of a file; a few probes long it is looked for."""
    carried = b""
    at = start
    for _ in range(16):
        if at >= end:
            return None
        chunk = os.pread(fd, min(_PROBE_BYTES, end - at), at)
        if not chunk:
            return None
        data = carried + chunk
        for match in _IN_BYTES.finditer(data):
            groups = {name: None if value is None else value.decode() for name, value in match.groupdict().items()}
            seconds = _seconds(groups)
            if seconds is not None:
                return at - len(carried) + match.start(), seconds
        carried = data[-40:]
        at += len(chunk)
    return None
