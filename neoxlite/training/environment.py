"""What the job script tells a run through environment variables. Imports no torch."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neoxlite.errors import ConfigError


@dataclass(frozen=True)
class RunFiles:
    """Files shared with the script that started the run; each may be absent."""

    stop: Path | None = None
    """Its presence asks the run to save and end; its text says why."""
    outcome: Path | None = None
    metrics: Path | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> RunFiles:
        """Read NEOXLITE_STOP_FILE, NEOXLITE_OUTCOME_FILE and NEOXLITE_METRICS_FILE."""
        env = os.environ if environ is None else environ
        names = ("NEOXLITE_STOP_FILE", "NEOXLITE_OUTCOME_FILE", "NEOXLITE_METRICS_FILE")
        return cls(*(Path(env[name]) if env.get(name) else None for name in names))


def peak_tflops(environ: Mapping[str, str] | None = None) -> float | None:
    """Return NEOXLITE_PEAK_TFLOPS, the device's peak in TFLOP/s, or None."""
    text = (os.environ if environ is None else environ).get("NEOXLITE_PEAK_TFLOPS")
    if not text:
        return None
    try:
        peak = float(text)
    except ValueError:
        peak = math.nan
    if not 0 < peak < math.inf:
        raise ConfigError(f"NEOXLITE_PEAK_TFLOPS={text!r} is not a peak", hint="give TFLOP/s, such as 989")
    return peak
