"""What NCCL tells of a job, put together: version, networks, paths, communicators, warnings; alike ranks in one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcjob.logs import nccl_hosts
from hpcjob.logs.events import Event, Finding
from hpcjob.logs.fold import Fold, Group, ranges, without_numbers
from hpcjob.logs.lines import Line
from hpcjob.logs.nccl_events import Communicator as CommunicatorEvent
from hpcjob.logs.report import Row
from hpcjob.logs.rulebook import load
from hpcjob.logs.shapes import Interest, Shapes

# Lines of which a process writes many that say the same.
_ALIKE = (b"] via P2P/", b" via SHM/", b" via NET/", b" via direct shared memory", b"GPU Direct RDMA ")
_FLOOD = (b"Trees [", b"Ring ")
# What the table of hosts shows; a row each only where lines do not name their host.
_OF_HOSTS = ("version", "bootstrap", "network", "gdr", "nvls", "channels", "path")
_ORDER = (*_OF_HOSTS, "plugin", "environment", "binding", "end")
_COMMUNICATORS_AT_MOST = 50_000
# What is of no matter where all ranks are on one node: how nodes talk to each other.
_BETWEEN_NODES = {
    "nccl-no-ib", "nccl-no-verbs", "nccl-hcas-mixed", "nccl-ofi-tcp", "nccl-gdr-off", "nccl-bridge",
    "nccl-net-failed", "verbs-config", "verbs-memlock",
}  # fmt: skip
_VARIABLES_BETWEEN_NODES = ("NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL")


class Communicator:
    """Ranks of one communicator that began and finished its start.

    Before NCCL 2.19 lines carry no id that is common to the ranks; then communicators of one size are taken for one.
    """

    def __init__(self, size: int, comm_id: str | None = None) -> None:
        self.size = size
        self.comm_id = comm_id
        self.started: set[int] = set()
        self.complete: set[int] = set()
        self.hosts: set[str] = set()
        self.init_s: float | None = None
        self.bootstrap_s: float | None = None

    @property
    def missing(self) -> set[int]:
        """Ranks that have not finished."""
        return set(range(self.size)) - self.complete

    @property
    def ready(self) -> bool:
        """Whether all ranks have finished."""
        return len(self.complete) >= self.size

    @property
    def silent(self) -> set[int]:
        """Of the ranks that are missing those that have not begun, where some have."""
        return self.missing - self.started if self.started else set()

    def event(self) -> CommunicatorEvent:
        """Return what is known of it."""
        return CommunicatorEvent(
            size=self.size,
            comm_id=self.comm_id,
            ready=len(self.complete),
            missing=sorted(self.missing),
            silent=sorted(self.silent),
            init_s=self.init_s,
            bootstrap_s=self.bootstrap_s,
            hosts=sorted(self.hosts),
        )


class NcclReport:
    """Read lines of NCCL, give rows.

    Args:
        listening: only what NCCL tells of itself; its errors are read elsewhere.
    """

    def __init__(self, *, listening: bool = False) -> None:
        own = ("nccl", "nccl_topology")
        self._book = load(*own) if listening else load(*own, "nccl_errors", "catchall")
        self._fold: Fold[Finding] = Fold()
        self._communicators: dict[str, Communicator] = {}
        self._latest: dict[tuple[str | None, int | None, int], Communicator] = {}
        self.hosts = nccl_hosts.Hosts()
        self.banners: set[str] = set()
        """Versions as the first rank tells them without its host: NCCL's own words up to 2.26."""
        self._nodes = 0  # of the largest communicator, as NCCL counts them from 2.19 on

    def read(self, line: Line) -> list[Finding]:
        """Take a line in and return what it says, if a rule knows it."""
        if "NCCL" not in line.text:
            return []
        finding = self._book.find(line)
        if finding is None:
            return []
        self.hosts.take(finding, line)
        if finding.rule == "nccl-init":
            self._init(finding, line)
        elif finding.rule == "nccl-timings":
            self._timings(finding, line)
        elif finding.rule == "nccl-version" and line.host is None:
            self.banners.add(finding.fields["version"])
        elif finding.rule == "nccl-nodes":
            self._nodes = max(self._nodes, int(finding.fields["nodes"]))
        else:
            say = without_numbers(finding.say) if finding.role == "warning" else finding.say
            self._fold.add((finding.rule, say), finding, line)
        return [finding]

    @property
    def communicators(self) -> list[Communicator]:
        """Return all communicators seen, the largest first."""
        return sorted(self._communicators.values(), key=lambda communicator: -communicator.size)

    @property
    def seen(self) -> bool:
        """Whether any line of NCCL was read."""
        return bool(self._fold.groups or self._communicators or self.banners)

    @property
    def warnings(self) -> list[Group[Finding]]:
        """What NCCL, or how it is set up, does not do as it should."""
        return [
            group for group in self._fold.groups.values() if group.first.role != "info" and self.matters(group.first)
        ]

    @property
    def one_node(self) -> bool:
        """Whether all ranks are known to be on one node."""
        if self._nodes or len(self.hosts.facts) > 1:
            return self._nodes == 1 and len(self.hosts.facts) < 2
        largest = next(iter(self.communicators), None)
        return largest is not None and len(largest.started | largest.complete) >= largest.size

    def matters(self, finding: Finding) -> bool:
        """Whether a warning is of any matter to this job."""
        between = finding.rule in _BETWEEN_NODES or finding.fields.get("name") in _VARIABLES_BETWEEN_NODES
        return not (between and self.one_node)

    def shapes(self) -> Shapes:
        """Return the shapes of lines that say something, for reading whole logs fast."""
        return Shapes(self.interests())

    def interests(self) -> list[tuple[Interest, Sequence[bytes]]]:
        """Return which texts lines of interest have."""
        return [
            (Interest.ALL, load("nccl_errors", "catchall").literals),
            (Interest.PROCESS, _ALIKE),
            (Interest.SOME, _FLOOD),
            (Interest.ALL, load("nccl", "nccl_topology").literals),
        ]

    def pending(self) -> bool:
        """Nothing ever goes over several lines."""
        return False

    def pending_in(self, source: str) -> bool:
        """Nothing ever goes over several lines."""
        return False

    def finish(self) -> list[Event]:
        """Nothing is ever left unfinished."""
        return []

    def summary(self) -> list[Event]:
        """Return what was gathered over the whole log."""
        return [
            *(communicator.event() for communicator in self.communicators),
            *(self.hosts.event(name) for name in self.hosts.facts),
        ]

    def _init(self, finding: Finding, line: Line) -> None:
        fields = finding.fields
        size, rank = int(fields["nranks"]), int(fields["rank"])
        key = f"{fields['comm_id']}/{size}"
        communicator = self._communicators.get(key)
        if communicator is None:
            if len(self._communicators) >= _COMMUNICATORS_AT_MOST:
                return
            communicator = self._communicators[key] = Communicator(size, fields["comm_id"] or None)
        reached = communicator.complete if fields["stage"] == "COMPLETE" else communicator.started
        if rank < size:
            reached.add(rank)
        self._latest[line.host, line.pid, size] = communicator
        if line.host is not None:
            communicator.hosts.add(line.host)
            if size == max(one.size for one in self._communicators.values()):
                self.hosts.ranks(line.host, rank)

    def _timings(self, finding: Finding, line: Line) -> None:
        fields = finding.fields
        communicator = self._latest.get((line.host, line.pid, int(fields["nranks"])))
        if communicator is None:
            return
        communicator.init_s = max(communicator.init_s or 0.0, float(fields["total_s"]))
        if fields["bootstrap_s"]:
            communicator.bootstrap_s = max(communicator.bootstrap_s or 0.0, float(fields["bootstrap_s"]))

    def rows(self) -> Iterator[Row]:
        """Give the summary: what needs attention, communicators, hosts, then the other facts in a fixed order."""
        groups = list(self._fold.groups.values())
        facts = [group for group in groups if group.first.role == "info"]
        for number, oddity in enumerate(self.hosts.oddities()):
            yield Row(("odd", oddity.topic, number), "warning", oddity.topic, oddity.text, fix=oddity.fix)
        yield from self._socket_rows(facts)
        yield from map(_row, self.warnings)
        yield from self._init_rows()
        yield from self._host_rows()
        tabled = _OF_HOSTS if self.hosts.facts else ()
        for version in sorted(self.banners):
            yield Row(("banner", version), "info", "version", f"NCCL {version} (reported by the first rank)")
        for topic in _ORDER:
            for group in facts:
                if group.first.topic == topic and topic not in tabled:
                    yield _row(group)

    def _init_rows(self) -> Iterator[Row]:
        by_size: dict[int, list[Communicator]] = {}
        for communicator in self._communicators.values():
            by_size.setdefault(communicator.size, []).append(communicator)
        for number, communicator in enumerate(one for one in self.communicators if not one.ready):
            size, missing, silent = communicator.size, communicator.missing, communicator.silent
            text = f"{len(communicator.complete)} of {size} ranks ready, not yet {ranges(missing)}"
            if silent:
                text += f" (not started: {ranges(silent)})"
            yield Row(("init", size, number), "warning", "init", text)
        for size, communicators in sorted(by_size.items(), reverse=True):
            ready = [communicator for communicator in communicators if communicator.ready]
            if ready:
                what = "communicator" if len(ready) == 1 else "communicators"
                slowest = max((one.init_s for one in ready if one.init_s is not None), default=None)
                took = "" if slowest is None else f", the slowest start took {slowest:.2f} s"
                yield Row(("init", size), "info", "init", f"{len(ready)} {what} of {size} ranks ready{took}")

    def _host_rows(self) -> Iterator[Row]:
        table = self.hosts.table()
        if not table:
            return
        columns = list(zip(nccl_hosts.HEADINGS, *(cells for _, cells in table), strict=True))
        used = [column for column in columns if any(column[1:])]
        widths = [max(map(len, column)) for column in used]
        for number in range(len(table) + 1):
            cells = [column[number] for column in used]
            text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
            role = "header" if number == 0 else "warning" if table[number - 1][0] else "info"
            yield Row(("host", cells[0]), role, "host" if number else "", text)

    def _socket_rows(self, facts: list[Group[Finding]]) -> Iterator[Row]:
        hosts = self.hosts.facts.values()
        told = [facts.networks for facts in hosts if facts.networks]
        if len(hosts) > 1 and (
            (told and all("Socket" in networks for networks in told))
            or (not told and any(group.first.fields.get("net") == "Socket" for group in facts))
        ):
            yield Row(
                ("sockets",),
                "warning",
                "network",
                f"{len(hosts)} nodes talk over TCP sockets, which is many times slower than InfiniBand or RoCE",
                fix="Look for NCCL_IB_DISABLE, a missing /dev/infiniband or libibverbs, and NCCL_IB_HCA.",
            )


def _row(group: Group[Finding]) -> Row:
    finding = group.first
    times = f"  x{group.times}" if group.times > 1 else ""
    who = f"{group.who}: " if finding.role != "info" and group.who else ""
    key = (finding.rule, finding.say)
    return Row(key, finding.role, finding.topic, f"{who}{finding.say}{times}", fix=finding.fix, times=group.times)
