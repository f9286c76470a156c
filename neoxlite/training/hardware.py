"""What the GPU itself says while it trains: clock, power, temperature, and what holds its clock down.

Read in a thread, by NVML where nvidia-ml-py is installed, else by nvidia-smi, so that no step waits for it. Imports no
torch. Bits and fields: NVML's nvmlClocksEventReasons, nvidia-smi --help-query-gpu.
"""

from __future__ import annotations

import contextlib
import importlib
import statistics
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_USUAL = 0x4
"""A card at work runs at its power cap; the others are signs of a sick one."""
_NVML_EVERY_S, _SMI_EVERY_S = 1.0, 10.0
_SMI_TIMEOUT_S = 20
_FIELDS = ("clocks.sm", "clocks.max.sm", "power.draw", "power.limit", "temperature.gpu")
_REASON_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # drivers from 535 on, and before


@dataclass(frozen=True)
class Reading:
    """One look at a GPU, or the means over an interval."""

    sm_clock_mhz: float
    max_sm_clock_mhz: float
    power_w: float
    power_limit_w: float
    temperature_c: float
    reasons: int
    """Bits of `REASONS` and others."""

    @property
    def held_by(self) -> list[str]:
        """What holds the clock down, in words."""
        return [word for bit, word in REASONS.items() if self.reasons & bit]

    @property
    def throttled(self) -> list[str]:
        """Those of `held_by` that a card in order does not have."""
        return [word for bit, word in REASONS.items() if self.reasons & bit & ~_USUAL]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for metrics.jsonl."""
        return {
            "sm_clock_mhz": self.sm_clock_mhz,
            "power_w": self.power_w,
            "temperature_c": self.temperature_c,
            "clocks_held_by": self.held_by,
        }


def mean_reading(readings: Sequence[Reading]) -> Reading | None:
    """Return means, with every reason that was seen; None of no readings."""
    if not readings:
        return None

    def mean(name: str) -> float:
        return statistics.fmean(getattr(reading, name) for reading in readings)

    reasons = 0
    for reading in readings:
        reasons |= reading.reasons
    return Reading(
        mean("sm_clock_mhz"),
        readings[-1].max_sm_clock_mhz,
        mean("power_w"),
        readings[-1].power_limit_w,
        mean("temperature_c"),
        reasons,
    )


def hardware_line(reading: Reading) -> str:
    """Return the line of the log."""
    fields = [
        f"SM clock (MHz): {reading.sm_clock_mhz:.0f} of {reading.max_sm_clock_mhz:.0f}",
        f"power (W): {reading.power_w:.0f} of {reading.power_limit_w:.0f}",
        f"temperature (C): {reading.temperature_c:.0f}",
    ]
    if reading.held_by:
        fields.append(f"clock held by: {', '.join(reading.held_by)}")
    return f"GPU | {' | '.join(fields)}"


def throttled_line(reading: Reading, gpu: str) -> str | None:
    """Return the warning that names a throttled card; None for one in order."""
    if not reading.throttled:
        return None
    return (
        f"WARNING: {gpu} is throttled by {', '.join(reading.throttled)}: SM clock {reading.sm_clock_mhz:.0f} of "
        f"{reading.max_sm_clock_mhz:.0f} MHz, {reading.power_w:.0f} W, {reading.temperature_c:.0f} C; every rank waits "
        "for it: have its cooling checked, or exclude the node"
    )


class Source(Protocol):
    """Where readings come from."""

    every_s: float

    def read(self) -> Reading:
        """Look once. Raises what it may; the watch then ends."""


class HardwareWatch:
    """Reads a GPU in a thread until it is closed.

    Args:
        open_source: called in the thread; where it or a reading raises, there are no more readings.
    """

    def __init__(self, open_source: Callable[[], Source]):
        self._open = open_source
        self._readings: list[Reading] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hardware-watch", daemon=True)
        self._thread.start()

    def take(self) -> Reading | None:
        """Return the means since the last call, or None."""
        with self._lock:
            readings, self._readings = self._readings, []
        return mean_reading(readings)

    def close(self) -> None:
        """Ask the thread to end; it is not waited for."""
        self._end.set()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # drivers and their tools fail in many ways; training goes on without
            source = self._open()
            while not self._end.wait(source.every_s):
                reading = source.read()
                with self._lock:
                    self._readings.append(reading)


class NvmlSource:
    """Reads by NVML. Raises ImportError without nvidia-ml-py, and NVML's errors."""

    every_s = _NVML_EVERY_S

    def __init__(self, uuid: str):
        self._nvml: Any = importlib.import_module("pynvml")  # optional, and without types
        self._nvml.nvmlInit()
        self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> Reading:
        """Look once."""
        nvml, handle = self._nvml, self._handle
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        return Reading(
            nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            reasons(handle),
        )


class SmiSource:
    """Reads by nvidia-smi. Raises OSError or ValueError where it does not answer as it should."""

    every_s = _SMI_EVERY_S

    def __init__(self, uuid: str):
        self._uuid = uuid
        self._reasons = next((field for field in _REASON_FIELDS if self._query(field) is not None), None)
        if self._reasons is None:
            raise OSError("nvidia-smi does not answer")

    def read(self) -> Reading:
        """Look once."""
        text = self._query(",".join((*_FIELDS, str(self._reasons))))
        *numbers, reasons = (text or "").split(",")
        clock, most, power, limit, temperature = map(float, numbers)
        return Reading(clock, most, power, limit, temperature, int(reasons, 16))

    def _query(self, fields: str) -> str | None:
        command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-i", self._uuid]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, stdin=subprocess.DEVNULL)
        return run.stdout.strip() if run.returncode == 0 else None


def open_source(uuid: str) -> Source:
    """Return what reads the GPU of a UUID (``GPU-...``).

    Raises:
        Exception: nothing can; whatever the driver or its tools raised.
    """
    try:
        return NvmlSource(uuid)
    except Exception:
        return SmiSource(uuid)
