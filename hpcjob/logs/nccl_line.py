"""A flood of NCCL's lines as one: ``NCCL 2.25.1, 16 ranks, IB 8 x NDR, GDR on, NVLS on: ok``."""

from __future__ import annotations

from typing import NamedTuple

from hpcjob.logs.fold import ranges
from hpcjob.logs.nccl import NcclReport
from hpcjob.logs.nccl_hosts import HostFacts, rate


class Folded(NamedTuple):
    """The line, and whether all is as it should be; ``settled``: all ranks have started, so it will hardly change."""

    text: str
    ok: bool
    settled: bool


def fold_nccl(report: NcclReport, *, link_gbps: float | None = None) -> Folded:
    """Put in one line what NCCL has told.

    Args:
        link_gbps: rate of an adapter by the cluster's profile, where NCCL does not tell it.
    """
    hosts = list(report.hosts.facts.values())
    network = "one node" if report.one_node else _network(hosts, link_gbps)
    parts = [_version(hosts, report.banners), _ranks(report), network]
    gdr = [facts.gdr for facts in hosts if facts.gdr is not None]
    if gdr and not report.one_node:
        parts.append(f"GDR {_state(gdr)}")
    nvls = [facts.nvls for facts in hosts if facts.nvls is not None]
    if nvls:
        parts.append(f"NVLS {_state(nvls)}")
    largest = next(iter(report.communicators), None)
    problems = _problems(report)
    verdict = "; ".join(problems) or ("ok" if largest is not None else "starting")
    return Folded(f"{', '.join(filter(None, parts))}: {verdict}", not problems, largest is not None and largest.ready)


def _version(hosts: list[HostFacts], banners: set[str]) -> str:
    told = {version for facts in hosts for version in facts.versions} | banners
    versions = sorted({version.partition("+")[0] for version in told})
    return f"NCCL {' and '.join(versions)}" if versions else "NCCL"


def _ranks(report: NcclReport) -> str:
    largest = next(iter(report.communicators), None)
    if largest is not None:
        return f"{largest.size} rank{'' if largest.size == 1 else 's'}"
    processes = sum(len(facts.processes) for facts in report.hosts.facts.values())
    return f"{processes} processes" if processes else ""


def _network(hosts: list[HostFacts], link_gbps: float | None) -> str:
    networks = sorted({network for facts in hosts for network in facts.networks})
    counts = sorted({facts.hcas for facts in hosts if facts.hcas})
    name = " and ".join("TCP sockets" if network == "Socket" else network for network in networks)
    if not counts or networks == ["Socket"]:
        return name
    links = {link for facts in hosts for link in facts.links}
    gbps = {value for facts in hosts for value in facts.gbps} or ({link_gbps} if link_gbps else set())
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    adapter = rate(links, gbps)
    return f"{name or 'network'} {number} x {'HCA' if adapter == name else adapter.removeprefix(f'{name} ')}"


def _state(values: list[bool]) -> str:
    return "on" if all(values) else "off" if not any(values) else "on some hosts only"


def _problems(report: NcclReport) -> list[str]:
    found = []
    waiting = next((one for one in report.communicators if not one.ready), None)
    if waiting is not None:
        found.append(f"{len(waiting.complete)} of {waiting.size} ranks ready, not yet {ranges(waiting.missing)}")
    found += [oddity.text for oddity in report.hosts.oddities()]
    several = len(report.hosts.facts) > 1
    if several and all(facts.networks == {"Socket"} for facts in report.hosts.facts.values()):
        found.append("nodes talk over TCP sockets")
    others = len({group.first.say for group in report.warnings if group.first.rule != "nccl-gdr-off"})
    if others:
        found.append(f"{others} warning{'' if others == 1 else 's'} (--nccl shows)")
    return found
