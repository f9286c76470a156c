"""What NCCL tells of itself, host by host: version, network, adapters, paths; and which hosts differ from the most."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from hpcjob.logs.events import Finding
from hpcjob.logs.fold import ranges
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line
from hpcjob.logs.nccl_events import NcclHost

_HOSTS_AT_MOST = 100_000
_NAMED_AT_MOST = 4
_RATES = {800.0: "XDR", 400.0: "NDR", 100.0: "EDR", 56.0: "FDR"}  # 200 is HDR or half of NDR


class HostFacts:
    """What the processes of one host say; sets, since they should be of one opinion."""

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self.processes: set[int] = set()
        self.versions: set[str] = set()
        self.networks: set[str] = set()
        self.interfaces: set[str] = set()
        self.hcas: int | None = None
        self.links: set[str] = set()
        self.gbps: set[float] = set()
        self.gdr: bool | None = None
        self.paths: set[str] = set()
        self.nvls: bool | None = None
        self.channels: int | None = None

    @property
    def told(self) -> bool:
        """Whether any line told of the host's network or software."""
        return bool(self.versions or self.networks or self.interfaces or self.paths or self.channels or self.ranks)

    def take(self, finding: Finding, line: Line) -> None:
        """Take in what a rule found in a line of this host."""
        if line.pid is not None:
            self.processes.add(line.pid)
        if line.rank is not None:
            self.ranks.add(line.rank)
        reader = _READERS.get(finding.rule)
        if reader is not None:
            reader(self, finding.fields, line.text)


def _adapters(facts: HostFacts, _: dict[str, str], text: str) -> None:
    listed = re.findall(r"\[\d{1,3}\][^\s/;]{1,60}/(IB|RoCE)", text[:4096])
    facts.hcas = max(facts.hcas or 0, len(listed))
    facts.links.update(listed)


def _adapter(facts: HostFacts, fields: dict[str, str], _: str) -> None:
    facts.gbps.add(int(fields["mbit_s"]) / 1000)


def _channels(facts: HostFacts, fields: dict[str, str], _: str) -> None:
    facts.channels = max(facts.channels or 0, int(fields["channels"]))


def _gdr(on: bool) -> Callable[[HostFacts, dict[str, str], str], None]:
    def read(facts: HostFacts, fields: dict[str, str], text: str) -> None:
        facts.gdr = facts.gdr or on

    return read


def _nvls(on: bool) -> Callable[[HostFacts, dict[str, str], str], None]:
    def read(facts: HostFacts, fields: dict[str, str], text: str) -> None:
        facts.nvls = on if facts.nvls is None else facts.nvls and on

    return read


def _adder(name: str, value: str) -> Callable[[HostFacts, dict[str, str], str], None]:
    """Add a field of the rule, in braces, or a word, to a set."""

    def read(facts: HostFacts, fields: dict[str, str], text: str) -> None:
        getattr(facts, name).add(value.format_map(fields))

    return read


_READERS: dict[str, Callable[[HostFacts, dict[str, str], str], None]] = {
    "nccl-version": _adder("versions", "{version}"),
    "nccl-network": _adder("networks", "{network}"),
    "nccl-network-socket": _adder("networks", "Socket"),
    "nccl-bootstrap": _adder("interfaces", "{interface}"),
    "nccl-bridge": _adder("interfaces", "{interface}"),
    "nccl-hcas": _adapters,
    "nccl-hcas-mixed": _adapters,
    "nccl-hca": _adapter,
    "nccl-gdr-on": _gdr(True),
    "nccl-gdr-off": _gdr(False),
    "nccl-path-net-gdr": _gdr(True),
    "nccl-path-p2p": _adder("paths", "P2P/{how}"),
    "nccl-path-shm": _adder("paths", "SHM"),
    "nccl-nvls-on": _nvls(True),
    "nccl-nvls-off": _nvls(False),
    "nccl-channels": _channels,
}


class _Trait(NamedTuple):
    """Something that all hosts should have alike.

    Attributes:
        value: of a host, None if it does not tell; better: orders values where no majority decides.
    """

    topic: str
    value: Callable[[HostFacts], Any]
    words: Callable[[Any], str]
    better: Callable[[Any], Any]
    fix: str


def _joined(names: set[str]) -> str | None:
    return " and ".join(sorted(names)) or None


def _on(value: bool) -> str:
    return "on" if value else "off"


TRAITS = (
    _Trait("version", lambda host: _joined(host.versions), lambda value: f"NCCL {value}", str,
           "Nodes load different modules, images or LD_LIBRARY_PATH: make them alike."),
    _Trait("network", lambda host: _joined(host.networks),
           lambda value: "TCP sockets" if value == "Socket" else f"network {value}",
           lambda value: "Socket" not in value,
           "Look there for /dev/infiniband, libibverbs, NCCL_IB_DISABLE and NCCL_IB_HCA (ibstat, ibv_devices)."),
    _Trait("network", lambda host: host.hcas, lambda value: f"{value} HCAs", int,
           "Exclude those hosts or have the port checked (ibstat)."),
    _Trait("network", lambda host: min(host.gbps, default=None), lambda value: f"adapters of {value:g} Gbit/s", float,
           "A link came up slower than it can: have cable and port checked (ibstat, mlxlink)."),
    _Trait("bootstrap", lambda host: _joined(host.interfaces), lambda value: f"start over {value}", lambda value: 0,
           "Set the same NCCL_SOCKET_IFNAME on all nodes; it takes prefixes (eno,eth) where names differ."),
    _Trait("gdr", lambda host: host.gdr, lambda value: f"GPUDirect RDMA {_on(value)}", bool,
           "Look there for nvidia_peermem or DMA-BUF (lsmod)."),
    _Trait("path", lambda host: _joined({path for path in host.paths if path == "SHM"} or host.paths),
           lambda value: f"GPU to GPU over {'host memory (SHM)' if value == 'SHM' else value}",
           lambda value: value != "SHM",
           "Look there at nvidia-smi topo -m, NCCL_P2P_DISABLE, and PCI ACS or the IOMMU."),
    _Trait("nvls", lambda host: host.nvls, lambda value: f"NVLS {_on(value)}", bool,
           "Look there at nvidia-fabricmanager."),
    _Trait("channels", lambda host: host.channels, lambda value: f"{value} channels", int,
           "NCCL found another topology there: compare nvidia-smi topo -m."),
)  # fmt: skip


class Oddity(NamedTuple):
    """Hosts that differ from the others in one thing."""

    topic: str
    hosts: tuple[str, ...]
    text: str
    fix: str


class Hosts:
    """All hosts of a job."""

    def __init__(self) -> None:
        self.facts: dict[str, HostFacts] = {}

    def take(self, finding: Finding, line: Line) -> None:
        """Take in what a rule found in a line; a line without a host tells nothing here."""
        if line.host is None:
            return
        facts = self.facts.get(line.host)
        if facts is None:
            if len(self.facts) >= _HOSTS_AT_MOST:
                return
            facts = self.facts[line.host] = HostFacts()
        facts.take(finding, line)

    def ranks(self, host: str, rank: int) -> None:
        """Note that a rank runs on a host."""
        if host in self.facts:
            self.facts[host].ranks.add(rank)

    def oddities(self) -> Iterator[Oddity]:
        """Give what some hosts have otherwise than the most, worst first, and what processes of a host disagree in."""
        for trait in TRAITS:
            values = {name: value for name, facts in self.facts.items() if (value := trait.value(facts)) is not None}
            counts = Counter(values.values())
            if len(counts) == 1 and trait.topic in ("version", "network") and " and " in str(next(iter(counts))):
                both = trait.words(next(iter(counts)))
                yield Oddity(trait.topic, tuple(values), f"{named(values)}: {both} in one job", trait.fix)
            if len(counts) < 2:
                continue
            usual = max(counts, key=lambda value: (counts[value], trait.better(value)))
            for value in sorted(counts.keys() - {usual}, key=str):
                odd = tuple(sorted(name for name, its in values.items() if its == value))
                others = f"{counts[usual]} {'host has' if counts[usual] == 1 else 'hosts have'} {trait.words(usual)}"
                yield Oddity(trait.topic, odd, f"{named(odd)}: {trait.words(value)}, while {others}", trait.fix)

    def event(self, name: str) -> NcclHost:
        """Return all about a host."""
        facts = self.facts[name]
        return NcclHost(
            host=name,
            processes=len(facts.processes),
            versions=sorted(facts.versions),
            networks=sorted(facts.networks),
            interfaces=sorted(facts.interfaces),
            hcas=facts.hcas,
            link=_joined(facts.links),
            link_gbps=min(facts.gbps, default=None),
            gdr=facts.gdr,
            paths=sorted(facts.paths),
            nvls=facts.nvls,
            channels=facts.channels,
            odd=[oddity.text.partition(": ")[2] for oddity in self.oddities() if name in oddity.hosts],
        )

    def table(self) -> list[tuple[bool, tuple[str, ...]]]:
        """Return a row for each kind of hosts as (whether odd, cells), odd ones first."""
        odd = {name for oddity in self.oddities() for name in oddity.hosts}
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, facts in self.facts.items():
            if not facts.told:
                continue
            alike.setdefault((*_cells(facts), "!" if name in odd else ""), []).append(name)
        rows = []
        for (*cells, mark), names in alike.items():
            ranks = {rank for name in names for rank in self.facts[name].ranks}
            rows.append((bool(mark), (folded(names), ranges(ranks) or "?", *cells)))
        return sorted(rows, key=lambda row: not row[0])


HEADINGS = ("hosts", "ranks", "NCCL", "network", "HCAs", "GDR", "GPU to GPU", "NVLS", "channels", "start over")


def _cells(facts: HostFacts) -> tuple[str, ...]:
    return (
        _joined(facts.versions) or "?",
        _joined(facts.networks) or "?",
        "" if facts.hcas is None else f"{facts.hcas} x {rate(facts.links, facts.gbps)}",
        "" if facts.gdr is None else _on(facts.gdr),
        _joined(facts.paths) or "",
        "" if facts.nvls is None else _on(facts.nvls),
        "" if facts.channels is None else str(facts.channels),
        _joined(facts.interfaces) or "?",
    )


def rate(links: set[str], gbps: set[float]) -> str:
    """Return what an adapter is: ``NDR``, ``200 Gbit/s``, ``RoCE``; by the slowest where they differ."""
    link = _joined(links) or "HCA"
    slowest = min(gbps, default=None)
    if slowest is None:
        return link
    if link == "IB" and slowest in _RATES:
        return _RATES[slowest]
    return f"{link} {slowest:g} Gbit/s"


def named(names: Iterable[str]) -> str:
    """Write a few names, and how many more there are."""
    every = list(names)
    more = len(every) - _NAMED_AT_MOST
    return ", ".join(every[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


_NUMBERED = lazy(r"(.*?)(\d+)(\D*)")


def folded(names: Iterable[str]) -> str:
    """Write names with their numbers put together: ``node[01-08,11]``."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    plain = []
    for name in sorted(names):
        match = _NUMBERED.fullmatch(name)
        if match is None or len(match[2]) > 9:
            plain.append(name)
        else:
            groups.setdefault((match[1], len(match[2]), match[3]), []).append(int(match[2]))
    found = []
    for (before, width, after), numbers in groups.items():
        written = ranges(numbers, width)
        found.append(f"{before}{written}{after}" if len(numbers) == 1 else f"{before}[{written}]{after}")
    return ",".join([*found, *plain])
