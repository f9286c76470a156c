"""The times that lines of a log tell, as numbers."""

from __future__ import annotations

from datetime import datetime

from hpcjob.logs.lazy import lazy

_TIME = lazy(r"(\d{4})-(\d\d)-(\d\d)[T _](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,6}))?)?")


def is_earlier(time: str | None, before: str | None) -> bool:
    """Whether a time is earlier than another; any is earlier than none."""
    return before is None or (time is not None and time < before)


def seconds(time: str | None) -> float | None:
    """Return a log's time in seconds; zones are left aside, since one job's clocks have the same."""
    match = None if time is None else _TIME.match(time)
    if match is None:
        return None
    try:
        moment = datetime(*(int(match[group] or 0) for group in range(1, 7)))  # type: ignore[arg-type]
    except ValueError:
        return None
    return (moment - datetime(1970, 1, 1)).total_seconds() + float(f"0.{match[7] or 0}")
