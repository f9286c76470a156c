"""What the numbers in a CUDA out-of-memory message say, in both shapes of PyTorch's text."""

from __future__ import annotations

import msgspec

from hpcjob.logs.lazy import lazy

_UNITS = {"bytes": 1 / 2**30, "KiB": 1 / 2**20, "MiB": 1 / 2**10, "GiB": 1.0, "TiB": 1024.0,
          "KB": 1 / 2**20, "MB": 1 / 2**10, "GB": 1.0}  # fmt: skip
_SIZE = r"([\d.]+) (bytes|[KMGT]i?B)"
_PATTERNS = {
    "asked": rf"[Tt]ried to allocate {_SIZE}",
    "capacity": rf"(?:total capacity of {_SIZE}|{_SIZE} total capacity)",
    "free": rf"(?:of which {_SIZE} is free|{_SIZE} free)",
    "process": rf"this process has {_SIZE} memory in use",
    "allocated": rf"(?:{_SIZE} is allocated by PyTorch|{_SIZE} already allocated)",
    "reserved": rf"{_SIZE} is reserved by PyTorch but unallocated",
    "reserved_total": rf"{_SIZE} reserved in total by PyTorch",
}
_COMPILED = {name: lazy(pattern) for name, pattern in _PATTERNS.items()}
_FRAGMENTED_SHARE = 0.1
_OTHERS_SHARE = 0.1


class GpuMemory(msgspec.Struct, frozen=True):
    """The numbers of the message, in GiB.

    Attributes:
        reserved: held by PyTorch's allocator and not in use.
        process: all that this process holds, PyTorch's or not.
    """

    asked: float | None = None
    capacity: float | None = None
    free: float | None = None
    process: float | None = None
    allocated: float | None = None
    reserved: float | None = None


def read(text: str) -> GpuMemory:
    """Return the numbers that a message has."""
    found: dict[str, float] = {}
    for name, pattern in _COMPILED.items():
        match = pattern.search(text)
        if match is not None:
            value, unit = (group for group in match.groups() if group is not None)
            found[name] = float(value) * _UNITS[unit]
    total = found.pop("reserved_total", None)
    if total is not None and "allocated" in found:
        found["reserved"] = max(0.0, total - found["allocated"])
    return GpuMemory(**found)


def advice(text: str) -> str | None:
    """Return the fix that fits the numbers, None if they say nothing beyond the general one."""
    memory = read(text)
    if memory.capacity is None:
        return None
    in_use = memory.process if memory.process is not None else (memory.allocated or 0) + (memory.reserved or 0)
    if memory.free is not None and in_use:
        others = memory.capacity - memory.free - in_use
        if others > memory.capacity * _OTHERS_SHARE:
            return (
                f"Another process holds {others:.1f} GiB of this GPU (nvidia-smi): a rank of a job before, "
                "or two ranks on one GPU."
            )
    if memory.reserved is not None and memory.reserved > memory.capacity * _FRAGMENTED_SHARE:
        return (
            f"{memory.reserved:.1f} GiB are reserved and unused (fragmentation): "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; else a smaller micro-batch."
        )
    if memory.asked is not None and memory.asked > memory.capacity * _FRAGMENTED_SHARE:
        return (
            f"One request of {memory.asked:.1f} GiB, of the size of the logits (micro-batch x sequence x vocabulary): "
            "lower the micro-batch or use a fused loss."
        )
    return None
