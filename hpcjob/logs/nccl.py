"""What NCCL tells of a job, put together: version, networks, paths, communicators, warnings; alike ranks in one row."""

from __future__ import annotations

from collections.abc import Iterator

from hpcjob.logs.events import Finding
from hpcjob.logs.fold import Fold, Group, ranges, without_numbers
from hpcjob.logs.lines import Gate, Line
from hpcjob.logs.report import Row
from hpcjob.logs.rulebook import load
from hpcjob.logs.scan import Interest, Shapes

# Lines of which a process writes many that say the same.
_ALIKE = (b"] via P2P/", b" via SHM/", b" via NET/", b" via direct shared memory", b"GPU Direct RDMA ")
_ORDER = ("version", "bootstrap", "network", "environment", "gdr", "nvls", "channels", "path", "end")


class Communicator:
    """Ranks of one communicator that began and finished its start.

    Before NCCL 2.19 lines carry no id that is common to the ranks; then communicators of one size are taken for one.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.started: set[int] = set()
        self.complete: set[int] = set()

    @property
    def missing(self) -> set[int]:
        """Ranks that have not finished."""
        return set(range(self.size)) - self.complete


class NcclReport:
    """Read lines of NCCL, give rows.

    Args:
        listening: only what NCCL tells of itself; its errors are read elsewhere.
    """

    def __init__(self, *, listening: bool = False) -> None:
        self._book = load("nccl") if listening else load("nccl", "nccl_errors", "catchall")
        self._fold: Fold[Finding] = Fold()
        self._communicators: dict[str, Communicator] = {}
        self._hosts: set[str] = set()
        self.gate: Gate = _has_nccl

    def read(self, line: Line) -> list[Finding]:
        """Take a line in and return what it says, if a rule knows it."""
        if "NCCL" not in line.text:
            return []
        if line.host is not None:
            self._hosts.add(line.host)
        finding = self._book.find(line)
        if finding is None:
            return []
        if finding.rule == "nccl-init":
            self._init(finding)
        else:
            say = without_numbers(finding.say) if finding.role == "warning" else finding.say
            self._fold.add((finding.rule, say), finding, line)
        return [finding]

    @property
    def communicators(self) -> list[Communicator]:
        """Return all communicators seen, the largest first."""
        return sorted(self._communicators.values(), key=lambda communicator: -communicator.size)

    def shapes(self) -> Shapes:
        """Return the shapes of lines that say something, for reading whole logs fast."""
        return Shapes(
            [
                (Interest.ALL, load("nccl_errors", "catchall").literals),
                (Interest.PROCESS, _ALIKE),
                (Interest.ALL, load("nccl").literals),
            ]
        )

    def pending(self) -> bool:
        """Nothing ever goes over several lines."""
        return False

    def finish(self) -> list[Finding]:
        """Nothing is ever left unfinished."""
        return []

    def _init(self, finding: Finding) -> None:
        fields = finding.fields
        size = int(fields["nranks"])
        key = f"{fields['comm_id']}/{size}"
        communicator = self._communicators.setdefault(key, Communicator(size))
        reached = communicator.complete if fields["stage"] == "COMPLETE" else communicator.started
        reached.add(int(fields["rank"]))

    def rows(self) -> Iterator[Row]:
        """Give the summary: facts in a fixed order, then what needs attention."""
        groups = list(self._fold.groups.values())
        facts = [group for group in groups if group.first.role == "info"]
        for topic in _ORDER:
            for group in facts:
                if group.first.topic == topic:
                    yield _row(group)
        yield from self._init_rows()
        yield from self._socket_rows(facts)
        for group in groups:
            if group.first.role != "info":
                yield _row(group)

    def _init_rows(self) -> Iterator[Row]:
        by_size: dict[int, list[Communicator]] = {}
        for communicator in self._communicators.values():
            by_size.setdefault(communicator.size, []).append(communicator)
        for size, communicators in sorted(by_size.items(), reverse=True):
            ready = [communicator for communicator in communicators if not communicator.missing]
            unready = [communicator for communicator in communicators if communicator.missing]
            if ready:
                what = "communicator" if len(ready) == 1 else "communicators"
                yield Row(("init", size), "info", "init", f"{len(ready)} {what} of {size} ranks ready")
            for number, communicator in enumerate(unready):
                text = f"{len(communicator.complete)} of {size} ranks ready, not yet {ranges(communicator.missing)}"
                silent = communicator.missing - communicator.started
                if communicator.started and silent:
                    text += f" (not started: {ranges(silent)})"
                yield Row(("init", size, number), "warning", "init", text)

    def _socket_rows(self, facts: list[Group[Finding]]) -> Iterator[Row]:
        over_sockets = any(
            group.first.rule == "nccl-network-socket" or group.first.fields.get("net") == "Socket" for group in facts
        )
        if over_sockets and len(self._hosts) > 1:
            yield Row(
                ("sockets",),
                "warning",
                "network",
                f"{len(self._hosts)} nodes talk over TCP sockets, which is many times slower than InfiniBand or RoCE",
                fix="Look for NCCL_IB_DISABLE, a missing /dev/infiniband or libibverbs, and NCCL_IB_HCA.",
            )


def _has_nccl(data: bytes) -> bool:
    return b"NCCL" in data


def _row(group: Group[Finding]) -> Row:
    finding = group.first
    times = f"  x{group.times}" if group.times > 1 else ""
    who = f"{group.who}: " if finding.role != "info" and group.who else ""
    key = (finding.rule, finding.say)
    return Row(key, finding.role, finding.topic, f"{who}{finding.say}{times}", fix=finding.fix)
