"""How long the kernels of collectives run in a step, and how much of that nothing else hides."""

from __future__ import annotations

from typing import Any

import torch

Span = tuple[float, float]


class Profile:
    """Records kernels between `start` and `stop` with torch's profiler; without a GPU it finds nothing."""

    def __init__(self) -> None:
        self._cuda = torch.cuda.is_available()
        activity = torch.profiler.ProfilerActivity
        self._profiler = torch.profiler.profile(activities=[activity.CUDA if self._cuda else activity.CPU])

    def start(self) -> None:
        """Begin."""
        if self._cuda:
            torch.cuda.synchronize()
            self._profiler.start()

    def stop(self, *, steps: int) -> dict[str, float]:
        """Return milliseconds a step: ``collectives``, ``exposed`` of them, ``compute``, and ``span`` of it all."""
        if not self._cuda:
            return {}
        torch.cuda.synchronize()
        self._profiler.stop()
        results: Any = self._profiler.profiler
        kernels = [
            (event.name(), event.start_ns() / 1e6, (event.start_ns() + event.duration_ns()) / 1e6)
            for event in results.kineto_results.events()
            if event.device_type() == torch.autograd.DeviceType.CUDA
        ]
        found = exposure(
            [(begin, end) for name, begin, end in kernels if "nccl" in name.lower()],
            [(begin, end) for name, begin, end in kernels if "nccl" not in name.lower()],
        )
        by_name: dict[str, float] = {}
        for name, begin, end in kernels:
            if "nccl" in name.lower():
                by_name[name.split("(")[0]] = by_name.get(name.split("(")[0], 0.0) + (end - begin) / steps
        return {**{f"{key}_ms": value / steps for key, value in found.items()}, "kernels_ms": by_name}  # type: ignore[dict-item]


def exposure(collectives: list[Span], compute: list[Span]) -> dict[str, float]:
    """Return the time covered by collectives, by compute, by collectives alone, and from first to last."""
    both = merged(collectives + compute)
    alone = length(both) - length(merged(compute))
    return {
        "collectives": length(merged(collectives)),
        "compute": length(merged(compute)),
        "exposed": alone,
        "span": both[-1][1] - both[0][0] if both else 0.0,
    }


def merged(spans: list[Span]) -> list[Span]:
    """Return the union of spans as ones that do not touch, in order."""
    union: list[Span] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((begin, end))
    return union


def length(spans: list[Span]) -> float:
    """Return the sum of the spans' lengths."""
    return sum(end - begin for begin, end in spans)
