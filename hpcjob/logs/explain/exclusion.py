"""Hosts to leave out next time, and how a scheduler is told so."""

from __future__ import annotations

from collections.abc import Iterable

from hpcjob.logs.events import Finding
from hpcjob.logs.explain.blame import topic_of
from hpcjob.logs.explain.evidence import Blamed, Evidence
from hpcjob.logs.fold import ranges
from hpcjob.logs.identity import is_name
from hpcjob.logs.lazy import lazy

_TOPICS = ("hardware", "node", "network")
# Of the network, and no machine's fault: how it is set up.
_OF_SETTINGS = ("nccl-protection", "nccl-gid-index", "nccl-variable-wrong", "nccl-network-missing", "nccl-efa-request")
_NUMBERED = lazy(r"(.*?)(\d{1,18})")
_HOST_NAME = lazy(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def hosts_at_fault(blamed: Blamed, host: str | None, evidence: Evidence) -> list[str]:
    """Return the hosts that are at fault, if the fault is a machine's; none where most hosts say the same."""
    event = blamed.group.first
    if topic_of(event) not in _TOPICS or (isinstance(event, Finding) and event.rule in _OF_SETTINGS):
        return []
    if topic_of(event) == "network":
        peer = event.fields.get("peer") if isinstance(event, Finding) else None
        if peer:
            name = evidence.identity.host(peer)
            return [name] if is_name(name) and (name in evidence.identity.hosts or len(evidence.lost) == 1) else []
        if len(evidence.identity.hosts) < 2:
            return []  # nothing tells it from the network's other end
    hosts = {name for name in (*blamed.group.hosts, host) if name and is_name(name)}
    return sorted(hosts) if len(hosts) <= max(1, len(evidence.identity.hosts) // 4) else []


def ways_to_exclude(hosts: list[str], scheduler: str | None) -> dict[str, str]:
    """Return the words that leave hosts out, by where they go: a line of a job file, an option of the scheduler.

    Args:
        scheduler: ``slurm``, ``gridengine``, ``pbs``, ``pjm``, ``local``; None where it is not known.
    """
    names = [name for name in hosts if _HOST_NAME.fullmatch(name)]  # what a log says goes into a command
    if not names:
        return {}
    plain = f"exclude: [{', '.join(names)}]"
    slurm = f"--exclude={compressed(names)}"
    gridengine = f"-l h='!({'|'.join(names)})'"
    if scheduler == "slurm":
        return {"job file": plain, "sbatch": slurm}
    if scheduler == "gridengine":
        return {"job file": f'extra: ["-l h=!({"|".join(names)})"]', "qsub": gridengine}
    if scheduler in ("pbs", "pjm"):
        return {"operations": f"{scheduler.upper()} has no option that leaves hosts out: report {', '.join(names)}"}
    if scheduler is not None:
        return {}
    return {"job file": plain, "sbatch": slurm, "qsub": gridengine}


def compressed(hosts: Iterable[str]) -> str:
    """Write hosts as Slurm does: ``node[01-03,07],login``."""
    groups: dict[tuple[str, int], list[int]] = {}
    others = []
    for name in sorted(set(hosts)):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            others.append(name)
        else:
            groups.setdefault((match[1], len(match[2])), []).append(int(match[2]))
    words = []
    for (stem, width), numbers in groups.items():
        written = ranges(numbers, width)
        words.append(f"{stem}{written}" if len(numbers) == 1 else f"{stem}[{written}]")
    return ",".join([*words, *others])
