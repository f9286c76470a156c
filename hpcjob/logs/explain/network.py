"""What NCCL tells of the network and of the paths between GPUs, by host."""

from __future__ import annotations

from hpcjob.logs.events import Finding


class Network:
    """Take in what lines of NCCL say.

    Attributes:
        networks: of each host: ``IB``, ``Socket``.
        interfaces: hosts by the interface over which NCCL starts there.
        shm_hosts: hosts whose GPUs talk over shared memory.
        hcas: number of RDMA adapters of each host.
        versions: hosts by their version of NCCL.
        gdr: whether any process has GPUDirect RDMA.
    """

    def __init__(self) -> None:
        self.networks: dict[str, set[str]] = {}
        self.interfaces: dict[str, set[str]] = {}
        self.shm_hosts: set[str] = set()
        self.hcas: dict[str, int] = {}
        self.versions: dict[str, set[str]] = {}
        self.gdr = False

    def note(self, finding: Finding, host: str) -> None:
        """Take in what a line of a host says; empty: of which host is not known."""
        fields = finding.fields
        if finding.rule == "nccl-version":
            self.versions.setdefault(fields["version"], set()).add(host)
        elif finding.rule == "nccl-network-socket":
            self.networks.setdefault(host, set()).add("Socket")
        elif finding.rule == "nccl-network":
            self.networks.setdefault(host, set()).add(fields["network"])
        elif finding.rule in ("nccl-bootstrap", "nccl-bridge"):
            self.interfaces.setdefault(fields["interface"], set()).add(host)
        elif finding.rule == "nccl-path-shm":
            self.shm_hosts.add(host)
        elif finding.rule == "nccl-hcas":
            self.hcas[host] = fields["hcas"].count("[")
        elif finding.rule == "nccl-gdr-on":
            self.gdr = True
