"""What all lines of NCCL read so far tell, as events: of a communicator, of a host."""

from __future__ import annotations

import msgspec

from hpcjob.logs.events import Event


class Communicator(Event, frozen=True, kw_only=True, omit_defaults=True, tag="communicator"):
    """A communicator of NCCL, as all lines read so far tell it.

    Attributes:
        size: number of its ranks; comm_id: NCCL's id of it (from 2.19 on).
        ready: ranks whose start has finished; missing: those of which no line says so; silent: those of the missing
            that never began, where some tell that they did.
        init_s: the longest start of a rank, in seconds; bootstrap_s: of that the control network (from 2.22 on).
        hosts: hosts whose ranks are in it.
    """

    size: int
    comm_id: str | None = None
    ready: int = msgspec.field(default_factory=int)
    missing: list[int] = msgspec.field(default_factory=list)
    silent: list[int] = msgspec.field(default_factory=list)
    init_s: float | None = None
    bootstrap_s: float | None = None
    hosts: list[str] = msgspec.field(default_factory=list)


class NcclHost(Event, frozen=True, kw_only=True, omit_defaults=True, tag="nccl_host"):
    """What NCCL tells of itself on one host, as all lines read so far tell it.

    Attributes:
        processes: how many of them wrote lines.
        versions: of NCCL; networks: ``IB``, ``Socket``, ...; interfaces: over which NCCL starts.
        hcas: adapters for RDMA; link: ``IB`` or ``RoCE``; link_gbps: rate of one adapter.
        gdr: whether any pair has GPUDirect RDMA.
        paths: between the GPUs of a node, ``P2P/CUMEM``, ``SHM``; nvls: NVLink SHARP; channels: their number.
        odd: how the host differs from most others, in words.
    """

    processes: int = msgspec.field(default_factory=int)
    versions: list[str] = msgspec.field(default_factory=list)
    networks: list[str] = msgspec.field(default_factory=list)
    interfaces: list[str] = msgspec.field(default_factory=list)
    hcas: int | None = None
    link: str | None = None
    link_gbps: float | None = None
    gdr: bool | None = None
    paths: list[str] = msgspec.field(default_factory=list)
    nvls: bool | None = None
    channels: int | None = None
    odd: list[str] = msgspec.field(default_factory=list)
