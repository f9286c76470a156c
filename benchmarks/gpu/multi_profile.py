"""Where a step's time goes on the device: kernels by kind, collectives that nothing hides, and what is idle."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

Span = tuple[float, float]
KINDS = {
    "fused": r"^triton_|gelu|rotary|layer_?norm|rms_?norm",
    "attention": r"flash|fmha|sdpa|attention",
    "matmul": r"gemm|nvjet|cublas|cutlass|xmma|splitk",
    "optimizer": r"adam|^_accumulate|lpnorm",
    "loss": r"^_(log_sum|write|kernel)|softmax",
    "copies": r"memcpy|memset|copy|fill|catarray",
    "sums": r"reduce_kernel",
}
"""Kind of a kernel -> what its name has; the first that fits. Fused: norms and all else between the matrices."""
GAPS = 8
LARGEST = 12
_MARK = "spin_kernel"


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What ran on the device, in milliseconds of any clock."""

    name: str
    begin: float
    end: float

    @property
    def span(self) -> Span:
        """Begin and end."""
        return self.begin, self.end

    @property
    def is_collective(self) -> bool:
        """Whether it is one of NCCL's."""
        return "nccl" in self.name.lower()


class Profile:
    """Records kernels between `start` and `stop` with torch's profiler; without a GPU it finds nothing.

    The first step only fills the queue: what is counted goes from its end to the last one's.
    """

    def __init__(self) -> None:
        self._cuda = torch.cuda.is_available()
        activity = torch.profiler.ProfilerActivity
        self._profiler = torch.profiler.profile(activities=[activity.CUDA if self._cuda else activity.CPU])

    def start(self) -> None:
        """Begin."""
        if self._cuda:
            torch.cuda.synchronize()
            self._profiler.start()

    def marked(self, step: Callable[[], Any]) -> Any:
        """Call ``step``, with a mark on the device where it begins and where it ends."""
        self._mark()
        done = step()
        self._mark()
        return done

    def _mark(self) -> None:
        if self._cuda:
            torch.cuda._sleep(1)  # type: ignore[no-untyped-call] # a kernel of its own name

    def stop(self) -> dict[str, Any]:
        """Return what `steps_of` finds."""
        if not self._cuda:
            return {}
        torch.cuda.synchronize()
        self._profiler.stop()
        results: Any = self._profiler.profiler
        return steps_of(
            [
                Kernel(event.name(), event.start_ns() / 1e6, (event.start_ns() + event.duration_ns()) / 1e6)
                for event in results.kineto_results.events()
                if event.device_type() == torch.autograd.DeviceType.CUDA
            ]
        )


def steps_of(kernels: Sequence[Kernel]) -> dict[str, Any]:
    """Return milliseconds a step, from the end of the first marked step to the end of the last.

    Returns:
        ``span_ms``; ``collectives_ms``, ``exposed_ms`` of them and ``compute_ms``; ``kernels_ms`` of collectives by
        name; ``kinds_ms`` of the others; ``largest_ms`` by name; ``idle_ms`` of the device ``inside`` of steps and
        ``between`` them; ``gaps``: the longest times in which nothing computes, in all steps. Nothing of fewer than
        two steps, or if the profiler lost a mark.
    """
    marks = sorted((kernel.begin, kernel.end) for kernel in kernels if _MARK in kernel.name)
    if len(marks) % 2 or len(marks) < 4:
        return {}
    steps = [(begin[0], end[1]) for begin, end in zip(marks[::2], marks[1::2], strict=True)][1:]
    window, count = (marks[1][1], marks[-1][1]), len(steps)
    cut = [
        dataclasses.replace(kernel, begin=max(kernel.begin, window[0]), end=min(kernel.end, window[1]))
        for kernel in sorted(kernels, key=lambda kernel: kernel.begin)
        if kernel.end > window[0] and kernel.begin < window[1] and _MARK not in kernel.name
    ]
    collectives = [kernel for kernel in cut if kernel.is_collective]
    compute = [kernel for kernel in cut if not kernel.is_collective]
    found = exposure([kernel.span for kernel in collectives], [kernel.span for kernel in compute])
    found["span"] = window[1] - window[0]
    idle = outside(window, [kernel.span for kernel in cut])
    inside = overlap(idle, steps)
    by_name, by_kind, largest = Counter[str](), Counter[str](), Counter[str]()
    for kernel in cut:
        taken = (kernel.end - kernel.begin) / count
        if kernel.is_collective:
            by_name[kernel.name.split("(")[0]] += taken
        else:
            by_kind[kind(kernel.name)] += taken
            largest[short(kernel.name)] += taken
    return {
        **{f"{key}_ms": value / count for key, value in found.items()},
        "kernels_ms": dict(by_name),
        "kinds_ms": dict(by_kind),
        "largest_ms": dict(largest.most_common(LARGEST)),
        "idle_ms": {"inside": inside / count, "between": (length(idle) - inside) / count},
        "gaps": _gaps(window, steps, compute, [kernel.span for kernel in collectives])[:GAPS],
        "profiled_steps": count,
    }


def _gaps(window: Span, steps: list[Span], compute: Sequence[Kernel], collectives: list[Span]) -> list[dict[str, Any]]:
    """Return the times in which nothing computes, the longest first, and what ran before and behind."""
    gaps = outside(window, [kernel.span for kernel in compute])
    before = {kernel.end: kernel.name for kernel in compute}
    behind = {kernel.begin: kernel.name for kernel in reversed(compute)}
    return [
        {
            "ms": gap[1] - gap[0],
            "collective_ms": overlap([gap], collectives),
            "before": short(before.get(gap[0], "")),
            "behind": short(behind.get(gap[1], "")),
            "step": sum(step[1] <= gap[0] for step in steps),
            "where": "inside" if 2 * overlap([gap], steps) > length([gap]) else "between",
        }
        for gap in sorted(gaps, key=lambda gap: gap[0] - gap[1])
    ]


def kind(name: str) -> str:
    """Return which of `KINDS` a kernel is, or ``other``."""
    return next((one for one, pattern in KINDS.items() if re.search(pattern, name, re.IGNORECASE)), "other")


def short(name: str) -> str:
    """Return a kernel's name without namespaces and arguments, with what an elementwise one does."""
    base = re.split(r"[<(]", name.removeprefix("void ").replace("(anonymous namespace)::", ""))[0].split("::")[-1]
    does = re.search(r"\w+Functor\w*|\w+_kernel_cuda|\w+Ops\b", name)
    return (f"{base}:{does[0]}" if does and does[0] != base else base)[:56]


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


def outside(window: Span, spans: list[Span]) -> list[Span]:
    """Return the parts of a window that no span covers."""
    ends = [window[0]]
    begins = []
    for begin, end in merged(spans):
        begins.append(begin)
        ends.append(end)
    begins.append(window[1])
    return [(begin, end) for begin, end in zip(ends, begins, strict=True) if end > begin]


def overlap(some: list[Span], others: list[Span]) -> float:
    """Return how much of the union of spans lies in the union of others."""
    return length(merged(some)) + length(merged(others)) - length(merged(some + others))


def length(spans: list[Span]) -> float:
    """Return the sum of the spans' lengths."""
    return sum(end - begin for begin, end in spans)
