"""What the profile and the job promise, against what the log shows: network, HCAs, NCCL version, world size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpcjob.errors import HpcjobError

if TYPE_CHECKING:
    from hpcjob.logs.explain.evidence import Evidence
    from hpcjob.profile import ClusterProfile


def profile_of(directory: Path | None, name: str | None) -> ClusterProfile | None:
    """Return the profile that is named, else the one that the job's directory holds, else None."""
    from hpcjob.loading.profiles import load_profile

    if name is not None:
        return load_profile(name)[0]
    if directory is None or not (directory / "profile.yml").is_file():
        return None
    try:
        return load_profile(str(directory / "profile.yml"))[0]
    except HpcjobError:
        return None  # a profile of another version does not keep the log from being read


def differences(evidence: Evidence, profile: ClusterProfile) -> list[str]:
    """Return what differs from the profile, the worst first."""
    found = []
    network, networks = evidence.network, evidence.network.networks
    if profile.node.hcas and len(networks) > 1:
        sockets = sorted(host for host, names in networks.items() if "Socket" in names)
        if sockets:
            found.append(f"{profile.name} has InfiniBand or RoCE, and TCP sockets are used on {_some(sockets)}")
    fewer = sorted(host for host, count in network.hcas.items() if count < profile.node.hcas)
    if fewer:
        counts = sorted({network.hcas[host] for host in fewer})
        used = "-".join(map(str, counts))
        found.append(f"{profile.name} has {profile.node.hcas} HCAs a node, NCCL uses {used} on {_some(fewer)}")
    more = sorted(host for host, count in network.hcas.items() if profile.node.hcas and count > profile.node.hcas)
    if more:
        used = "-".join(map(str, sorted({network.hcas[host] for host in more})))
        found.append(
            f"{profile.name} has {profile.node.hcas} HCAs for computation, NCCL uses {used} on {_some(more)}: one of "
            "another network is among them"
        )
    found += _interfaces(evidence, profile)
    cuda = profile.versions.cuda
    built = sorted({version.partition("+cuda")[2] for version in network.versions if "+cuda" in version})
    if cuda and built and any(not version.startswith(cuda) for version in built):
        found.append(f"{profile.name} declares CUDA {cuda}, NCCL was built for {', '.join(built)}")
    declared = profile.versions.nccl
    others = sorted(version for version in network.versions if declared and not version.startswith(declared))
    if others:
        found.append(f"{profile.name} declares NCCL {declared}, the log has {', '.join(others)}")
    return found


def _interfaces(evidence: Evidence, profile: ClusterProfile) -> list[str]:
    expected = profile.network_interface
    if expected is None:
        return []
    others = {name: hosts for name, hosts in evidence.network.interfaces.items() if not name.startswith(expected)}
    if not others:
        return []
    name, hosts = max(others.items(), key=lambda item: len(item[1]))
    return [f"{profile.name} has {expected} between nodes, NCCL starts over {name} on {_some(sorted(hosts))}"]


def world_size_difference(evidence: Evidence, directory: Path | None) -> list[str]:
    """Return what is to be said of the number of ranks, by the job's hostfile (``host slots=N``)."""
    if directory is None or not evidence.identity.world_size:
        return []
    try:
        text = (directory / "hostfile").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    asked = sum(map(int, re.findall(r"\bslots=(\d{1,6})\b", text)))
    seen = evidence.identity.world_size
    return (
        [f"the job was given {asked} ranks, NCCL's largest communicator has {seen}"] if asked not in (0, seen) else []
    )


def _some(hosts: list[str]) -> str:
    return ", ".join(hosts[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
