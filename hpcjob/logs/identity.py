"""Who is who in a job: which rank runs where, and which host an address belongs to, as the log tells in passing."""

from __future__ import annotations

from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line
from hpcjob.logs.prefixes import told

_COMMUNICATOR = lazy(r"\brank (\d{1,7}) n[rR]anks (\d{1,7})\b")
# Of a communicator of all ranks; those of data or tensor parallelism number their ranks anew.
_ADDRESS = lazy(r"(?:Using |OOB |\[\d+\])(?P<interface>[A-Za-z][\w.@-]{0,30}):(?P<address>[0-9a-fA-F.:]{3,45})<\d+>")
_LOOPBACK = ("127.", "::1")


class Identity:
    """Ranks, hosts, processes and addresses seen so far."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self.host_of: dict[int, str] = {}
        self.world_size = 0
        self._rank_of: dict[tuple[str, int], int] = {}
        self._host_at: dict[str, str] = {}

    def read(self, line: Line) -> None:
        """Take in what a line of NCCL, or its prefixes, say."""
        if line.host is None:
            return
        host = told(line.host)
        if host is not None:
            self.hosts.add(host)
            if line.rank is not None and (line.pid is not None or line.rank not in self.host_of):
                self.host_of[line.rank] = host
        if "NCCL" not in line.text:
            return
        communicator = _COMMUNICATOR.search(line.text)
        if communicator is not None:
            rank, size = int(communicator[1]), int(communicator[2])
            if size >= self.world_size:
                self.world_size = size
                if host is not None:
                    self.host_of[rank] = host
                if line.pid is not None:
                    self._rank_of[line.host, line.pid] = rank
        for address in _ADDRESS.finditer(line.text):
            if host is not None and not address["address"].startswith(_LOOPBACK):
                self._host_at[address["address"]] = host

    def name(self, rank: int, host: str) -> None:
        """Note where a rank runs, from a table that says so."""
        if told(host) is not None:
            self.hosts.add(host)
            self.host_of.setdefault(rank, host)

    def rank(self, line: Line) -> int | None:
        """Return the rank that wrote a line: by its prefix or file, else by its process."""
        if line.rank is not None or line.host is None or line.pid is None:
            return line.rank
        return self._rank_of.get((line.host, line.pid))

    def host(self, name: str) -> str:
        """Return the host of a name or address; the name itself if nothing is known of it."""
        if name in self.hosts:
            return name
        known = self._host_at.get(name.strip("[]"))
        return known or next((host for host in self.hosts if same_host(host, name)), name)

    def ranks_on(self, host: str) -> set[int]:
        """Return the ranks that run on a host."""
        return {rank for rank, name in self.host_of.items() if name == host}


_OF_A_NETWORK = lazy(r"-(?:ib|hsn|opa|roce|eth|data|mgmt)\d{0,2}$")


def same_host(one: str, other: str) -> bool:
    """Whether two names are of one host: with its domain or without, or of one of its networks (``node01-ib0``)."""
    return is_name(one) and is_name(other) and _short(one) == _short(other)


def is_name(host: str) -> bool:
    """Whether it is the name of one machine: no address, and not ``localhost``."""
    return ":" not in host and not host.replace(".", "").isdigit() and told(host) is not None


def _short(name: str) -> str:
    return _OF_A_NETWORK.sub("", name.lower().partition(".")[0])
