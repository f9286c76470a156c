"""This rank's GPU for the log: readings of each interval, and a warning when the card is throttled."""

from __future__ import annotations

import socket

import torch

from neoxlite.training.hardware import HardwareWatch, Reading, open_source, throttled_line


class GpuWatch:
    """Looks at ``device`` in a thread; at a CPU it does nothing."""

    def __init__(self, device: torch.device):
        self._watch: HardwareWatch | None = None
        self._throttled: list[str] = []
        if device.type == "cuda":
            self._name = f"GPU {device.index or 0} of {socket.gethostname()}"
            uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
            self._watch = HardwareWatch(lambda: open_source(uuid))

    def look(self) -> Reading | None:
        """Return the means since the last call, if there are any; print what throttles the card when it changes."""
        reading = self._watch.take() if self._watch is not None else None
        if reading is None:
            return None
        line = throttled_line(reading, self._name)
        if line and reading.throttled != self._throttled:
            print(line + "\n", end="", flush=True)  # in one write: ranks may share a terminal
        self._throttled = reading.throttled
        return reading

    def close(self) -> None:
        """End the thread."""
        if self._watch is not None:
            self._watch.close()
