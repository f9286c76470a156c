"""Bus bandwidth of NCCL's collectives between all GPUs, by torch.distributed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from neoxlite.parallel.distributed import choose_device, join_world, leave_world, prepare
from neoxlite.parallel.ranks import Ranks


def bandwidth(ranks: Ranks, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return rows of collective, bytes, microseconds and bus bandwidth in GB/s, out of warmed communicators.

    Bus bandwidth as nccl-tests counts it: bytes / time, times 2(n-1)/n of an all-reduce and (n-1)/n of the two halves;
    ``bytes`` are those of the whole buffer. The slowest rank's median of the repetitions counts.
    """
    device = choose_device(ranks.local_rank)
    prepare(device)
    join_world(ranks, device)
    largest = max(arguments["bytes"])
    buffer = torch.zeros(largest // 2, dtype=torch.bfloat16, device=device)
    part = torch.zeros(largest // 2 // ranks.world_size, dtype=torch.bfloat16, device=device)
    n = ranks.world_size
    rows = []
    for size in arguments["bytes"]:
        whole, own = buffer[: size // 2], part[: size // 2 // n]
        for name, share, call in (
            ("all_reduce", 2 * (n - 1) / n, lambda whole=whole: dist.all_reduce(whole)),
            ("reduce_scatter", (n - 1) / n, lambda whole=whole, own=own: dist.reduce_scatter_tensor(own, whole)),
            ("all_gather", (n - 1) / n, lambda whole=whole, own=own: dist.all_gather_into_tensor(whole, own)),
        ):
            seconds = _slowest(_time(call, device, arguments["repeat"]), device)
            bus = size / seconds * share / 1e9
            rows.append({"collective": name, "bytes": size, "us": seconds * 1e6, "busbw_gb_s": bus})
    dist.barrier()
    leave_world()
    return {"rows": rows, "transport": dist.Backend.NCCL if device.type == "cuda" else dist.Backend.GLOO}


def _time(call: Callable[[], Any], device: torch.device, repeat: int) -> float:
    """Return the median seconds of a call over rounds of several, which hide the launch."""
    together = 5
    seconds = []
    for number in range(repeat + 2):
        dist.barrier()
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(together):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if number >= 2:
            seconds.append((time.perf_counter() - began) / together)
    return statistics.median(seconds)


def _slowest(seconds: float, device: torch.device) -> float:
    value = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value.item())
