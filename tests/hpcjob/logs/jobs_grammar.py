"""Logs of large jobs made from a grammar of documented shapes, with a fault planted in them.

The lines are those of NCCL 2.21 (NCCL_DEBUG=INFO), the Megatron family's training line, torch's watchdog and the
kernel; what a plant leaves in the log of a real job was taken from public issue threads of NCCL and PyTorch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from hpcjob.logs import topics

GPUS_PER_NODE = 8


class Plant(NamedTuple):
    """What ``hpcjob explain`` has to find; None: not asked."""

    kind: str
    code: int
    rank: int | None
    host: str | None


def host(rank: int) -> str:
    return f"gpu{rank // GPUS_PER_NODE:04d}"


def address(rank: int) -> str:
    node = rank // GPUS_PER_NODE
    return f"10.{node // 65536}.{node // 256 % 256}.{node % 256 + 1}"


class Job:
    """One job of ``ranks`` ranks; `lines` gives a rank's log."""

    def __init__(self, ranks: int, lines_per_rank: int, seed: int) -> None:
        self.ranks = ranks
        self.lines_per_rank = lines_per_rank
        self.random = random.Random(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.at = self.random.randrange(ranks)
        self.ids = [self.random.randrange(1000, 99999) for _ in range(ranks)]

    @property
    def plant(self) -> Plant:
        code, wants_rank, wants_host = WANTED[self.kind]
        return Plant(self.kind, code, self.at if wants_rank else None, host(self.at) if wants_host else None)

    def lines(self, rank: int) -> list[str]:
        if self.kind == "missing" and rank == self.at:
            return []
        lines = self._start(rank)
        if self.kind == "missing":  # the others wait in the start of NCCL, so what they wrote was before it
            return [*self._preparation(rank, self.lines_per_rank - len(lines)), *lines]
        ended = FAULTS[self.kind](self, rank)
        steps = self.lines_per_rank - len(lines) - len(ended)
        dead = self.kind == "killed-host" and host(rank) == host(self.at)
        lines += self._training(rank, steps // 2 if dead else steps)
        return lines + ended

    def _start(self, rank: int) -> list[str]:
        prefix = f"{host(rank)}:{self.ids[rank]}:{self.ids[rank] + 7} [{rank % GPUS_PER_NODE}] NCCL INFO "
        sockets = self.kind == "sockets" and host(rank) == host(self.at)
        network = "Socket" if sockets else "IB"
        comm = f"comm 0x{self.ids[rank]:x}f0 rank {rank} nranks {self.ranks} cudaDev {rank % 8} nvmlDev {rank % 8}"
        texts = [
            f"Bootstrap : Using ib0:{address(rank)}<0>",
            "NET/IB : No device found."
            if sockets
            else f"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:{address(rank)}<0>",
            f"Using network {network}",
            f"ncclCommInitRank {comm} busId 1b000 commId 0xabcdef01 - Init START",
            "NVLS multicast support is available on dev 0",
        ]
        for channel in range(min(16, self.lines_per_rank // 8)):
            after = (rank + 1) % self.ranks
            via = f"[send] via NET/{network}/0" if rank % 8 == 7 else "via P2P/CUMEM/read"
            texts.append(f"Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {after}[{after % 8}] {via}")
        if self.kind != "missing":
            texts.append(f"ncclCommInitRank {comm} busId 1b000 commId 0xabcdef01 - Init COMPLETE")
        return [prefix + text for text in texts]

    def _preparation(self, rank: int, count: int) -> Iterator[str]:
        for number in range(1, count + 1):
            time = f"2026-01-01 {number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
            yield f"[{time},123] [INFO] data: rank {rank} checked shard {number} of {count}"

    def _training(self, rank: int, count: int) -> Iterator[str]:
        for number in range(1, count + 1):
            seconds = number * 10 % 60
            time = f"2026-01-01 {number // 360 % 24:02d}:{number // 6 % 60:02d}:{seconds:02d}"
            if number % 10 == 0 and rank == self.ranks - 1:
                yield (
                    f" [{time}.000123] iteration {number:8d}/  250000 | consumed samples: {number * 1024:12d} | "
                    f"elapsed time per iteration (ms): {865.4 + number % 7:.1f} | learning rate: 1.500000E-04 | "
                    f"global batch size:  1024 | lm loss: {10 / (1 + number / 100):.6E} | loss scale: 1.0 | "
                    "grad norm: 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |"
                )
            else:
                yield f"[{time},123] [INFO] data: rank {rank} batch {number} waited {number % 13} ms"


LATE = "2026-01-02 08:00:"
REMOTE = (
    "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited "
    "or there was a network error, NCCL version 2.21.5"
)


def _followers(job: Job, rank: int) -> list[str]:
    prefix = f"{host(rank)}:{job.ids[rank]}:{job.ids[rank] + 9} [{rank % GPUS_PER_NODE}]"
    return [
        f"{prefix} misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer "
        f"{host(job.at)}<{40000 + rank}>",
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/w/train.py", line 77, in step',
        REMOTE.format(rank=rank),
    ]


def _nothing(job: Job, rank: int) -> list[str]:
    return []


def _xid(job: Job, rank: int) -> list[str]:
    if rank != job.at:
        return _followers(job, rank)
    number, text = job.random.choice([(79, "GPU has fallen off the bus."), (94, "Contained ECC error"), (48, "DBE")])
    return [
        f"Jan  2 08:00:00 {host(rank)} kernel: NVRM: Xid (PCI:0000:06:00): {number}, pid=1234, name=python3, {text}",
        f"Jan  2 08:00:01 {host(rank)} kernel: NVRM: Xid (PCI:0000:06:00): 45, pid=1234, name=python3, Ch 00000001",
        f"[rank{rank}]: RuntimeError: CUDA error: unspecified launch failure",
    ]


def _oom(job: Job, rank: int) -> list[str]:
    if rank != job.at:
        return _followers(job, rank)
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/w/model.py", line 33, in forward',
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {rank % 8} has a "
        "total capacity of 79.33 GiB of which 1.35 GiB is free.",
    ]


def _killed_host(job: Job, rank: int) -> list[str]:
    return [] if host(rank) == host(job.at) else _followers(job, rank)


def _timeout(job: Job, rank: int) -> list[str]:
    if rank == job.at:
        return []
    return [
        f"[rank{rank}]:[E102 08:30:00.123 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=7753, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
        "Timeout(ms)=600000) ran for 600021 milliseconds before timing out.",
        f"[rank{rank}]:[E102 08:30:00.456 ProcessGroupNCCL.cpp:670] [Rank {rank}] Some NCCL operations have failed or "
        "timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
        "corrupted/incomplete data.",
    ]


FAULTS: dict[str, Callable[[Job, int], list[str]]] = {
    "sockets": _nothing,
    "missing": _nothing,
    "xid": _xid,
    "oom": _oom,
    "killed-host": _killed_host,
    "timeout": _timeout,
}
KINDS = tuple(FAULTS)
WANTED = {
    "sockets": (topics.SLOW, False, True),
    "missing": (topics.LAUNCH, True, False),
    "xid": (topics.HARDWARE, False, True),
    "oom": (topics.GPU_MEMORY, True, True),
    "killed-host": (topics.ENDED, False, True),
    "timeout": (topics.TIMEOUT, True, True),
}
