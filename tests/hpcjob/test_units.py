"""Durations and sizes."""

from __future__ import annotations

import math

import pytest

from hpcjob.errors import InputError
from hpcjob.units import format_clock, parse_memory_gib, parse_walltime_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (3600, 3600),
        ("3600", 3600),
        ("12:00:00", 12 * 3600),
        ("1:30", 90),
        ("168:00:00", 168 * 3600),
        ("1-12", 36 * 3600),  # sbatch(1): "days-hours"
        ("1-12:30", 36 * 3600 + 30 * 60),  # sbatch(1): "days-hours:minutes", not minutes and seconds
        ("7-00:00:00", 7 * 86400),
        ("2:12:00:00", 60 * 3600),  # D:HH:MM:SS, as Grid Engine job scripts write it
        ("90m", 5400),
        ("1d12h", 36 * 3600),
        ("1h 30min", 5400),
        ("45s", 45),
    ],
)
def test_walltime_forms(text: str | int, seconds: int) -> None:
    """Each way of writing a duration that schedulers and people use is read as they mean it."""
    assert parse_walltime_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "0", 0, -5, "-5", "12:99:00", "1:2:3:4:5", "1.5h", "h", "１２:00:00", "1d1d", "9" * 400, "1:00:00\n2"],
)
def test_what_is_no_walltime(text: str | int) -> None:
    """Anything else is refused with the key, the value and the ways to write it."""
    with pytest.raises(InputError) as refused:
        parse_walltime_s(text, "walltime")
    assert refused.value.message == f"walltime: {text!r} is not a duration"
    assert refused.value.hint is not None
    assert "HH:MM:SS" in refused.value.hint


@pytest.mark.parametrize(("seconds", "clock"), [(1, "00:00:01"), (3600, "01:00:00"), (604800, "168:00:00")])
def test_clock(seconds: int, clock: str) -> None:
    """Hours may pass 99, as PBS, Grid Engine and PJM read it; what is written is read back."""
    assert format_clock(seconds) == clock
    assert parse_walltime_s(clock) == seconds


@pytest.mark.parametrize(
    ("text", "gib"),
    [("480G", 480), ("64GiB", 64), ("64 gb", 64), ("1.5T", 1536), ("512M", 0.5), ("1024B", 2**-20)],
)
def test_memory_forms(text: str, gib: float) -> None:
    """Prefixes are powers of 1024, as the schedulers take them."""
    assert parse_memory_gib(text) == pytest.approx(gib)


@pytest.mark.parametrize("text", [480, "480", 1.5])
def test_memory_without_a_unit(text: str | float) -> None:
    """480 is MiB to Slurm (sbatch(1), --mem), bytes to PBS (pbs_resources(7B), size), and GiB to who wrote it."""
    with pytest.raises(InputError) as error:
        parse_memory_gib(text)
    assert error.value.message == f"memory: {text!r} has no unit, and each scheduler has its own"
    assert error.value.hint == f"write {text}G for GiB, {text}M for MiB"


@pytest.mark.parametrize(
    "text", ["", "0", 0, -1, "-1G", "lots", "1,5G", "10 parsecs", math.nan, math.inf, "9" * 400, 10**400]
)
def test_what_is_no_memory_size(text: str | float) -> None:
    """Anything else is refused with the key and the value."""
    with pytest.raises(InputError, match=r"memory: .* is not a memory size"):
        parse_memory_gib(text)
