"""Clock, power and throttling of a GPU, from a stand-in for nvidia-smi that prints what a real one does."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from neoxlite.training.hardware import (
    HardwareWatch,
    Reading,
    SmiSource,
    hardware_line,
    mean_reading,
    throttled_line,
)


def reading(clock: float = 1455.0, reasons: int = 0x4) -> Reading:
    """An H200 at work."""
    return Reading(clock, 1980, 690.2, 700, 61, reasons)


def test_lines() -> None:
    """A card at its power cap is in order; one that is too hot is named."""
    assert hardware_line(reading()) == (
        "GPU | SM clock (MHz): 1455 of 1980 | power (W): 690 of 700 | temperature (C): 61 | clock held by: power cap"
    )
    assert (
        hardware_line(reading(1980, 0))
        == "GPU | SM clock (MHz): 1980 of 1980 | power (W): 690 of 700 | temperature (C): 61"
    )
    assert throttled_line(reading(), "GPU 3 of node7") is None
    assert throttled_line(reading(600, 0x44), "GPU 3 of node7") == (
        "WARNING: GPU 3 of node7 is throttled by hardware thermal slowdown: SM clock 600 of 1980 MHz, 690 W, 61 C; "
        "every rank waits for it: have its cooling checked, or exclude the node"
    )


def test_means_keep_every_reason() -> None:
    """A moment of throttling within an interval is not lost."""
    mean = mean_reading([reading(1400, 0x4), reading(1600, 0x88), reading(1500, 0x1)])
    assert mean is not None
    assert mean.sm_clock_mhz == 1500
    assert mean.held_by == ["power cap", "hardware slowdown", "power brake"]
    assert mean_reading([]) is None


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A nvidia-smi of an old driver, which knows the reasons under their old name, for one GPU."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        "*clocks_event*) echo 'Field \"clocks_event_reasons.active\" is not a valid field to query.'; exit 2;;\n"
        '*clocks.sm*"-i GPU-1") echo "1425, 1980, 698.43, 700.00, 63, 0x0000000000000004";;\n'
        '*"-i GPU-1") echo "0x0000000000000004";;\n'
        "*) echo 'No devices were found'; exit 6;; esac\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tool


def test_nvidia_smi(nvidia_smi: Path) -> None:
    """Fields as it prints them; a GPU that it does not know is refused."""
    assert SmiSource("GPU-1").read() == Reading(1425, 1980, 698.43, 700, 63, 0x4)
    with pytest.raises(OSError, match="does not answer"):
        SmiSource("GPU-2")


class Steps:
    """A source that gives two readings and then fails, as a driver that is gone."""

    every_s = 0.0

    def __init__(self) -> None:
        self.count = 0
        self.failed = threading.Event()

    def read(self) -> Reading:
        """Look once."""
        self.count += 1
        if self.count > 2:
            self.failed.set()
            raise RuntimeError("the driver is gone")
        return reading(1000.0 * self.count)


def test_watch_gives_means_and_survives_a_driver_that_fails() -> None:
    """Readings so far are kept, then there are none; the thread ends by itself."""
    source = Steps()
    watch = HardwareWatch(lambda: source)
    assert source.failed.wait(240)
    watch._thread.join(240)
    taken = watch.take()
    assert taken is not None
    assert taken.sm_clock_mhz == 1500
    assert watch.take() is None
    watch.close()


def test_watch_without_any_tool() -> None:
    """Where nothing can read the GPU there are no readings, and nothing is raised."""

    def nothing() -> Steps:
        raise OSError("no nvidia-smi")

    watch = HardwareWatch(nothing)
    watch._thread.join(240)
    assert watch.take() is None
    watch.close()
