"""What works but not as it should, and hosts that differ from the others; errors in words."""

from __future__ import annotations

from hpcjob.logs.events import Finding, Iteration, ProcessEnd, Traceback
from hpcjob.logs.explain.evidence import Blamed, Evidence
from hpcjob.logs.failures import describe_code
from hpcjob.logs.fold import ranks_in_words

_FIXES = (
    (
        "TCP sockets",
        "Look there for /dev/infiniband, libibverbs, NCCL_IB_DISABLE and NCCL_IB_HCA (ibstat, ibv_devices).",
    ),
    ("SHM", "Look at nvidia-smi topo -m, NCCL_P2P_DISABLE, and PCI ACS or the IOMMU."),
    ("another NCCL version", "Nodes load different modules, images or LD_LIBRARY_PATH: make them alike."),
    ("declares NCCL", "Load the modules of the profile, or set versions.nccl and nccl_from to what the job shall use."),
    ("declares CUDA", "Load the modules of the profile, or install a torch that was built for this CUDA."),
    ("between nodes, NCCL starts over", "Set NCCL_SOCKET_IFNAME to the interface of the profile (network_interface)."),
    ("interface", "Set the same NCCL_SOCKET_IFNAME on all nodes; it takes prefixes (eno,eth) where names differ."),
    (
        "of another network",
        "NCCL_IB_HCA names the adapters for computation (=mlx5_0,...) or excludes others (^mlx5_8).",
    ),
    ("HCAs", "Exclude those hosts or have the port checked (ibstat)."),
    ("was given", "Not all ranks came up, or the launcher started another number: compare nodes and procs_per_node."),
    ("Slurm: ", "A message of Slurm that no rule knows: ask operations if the job failed by it."),
    ("NCCL warns: ", "A warning of NCCL that no rule knows: look at what that process prints after it."),
)


def slow_hosts(evidence: Evidence) -> list[str]:
    """Return the hosts that use sockets while others do not."""
    networks = evidence.network.networks
    sockets = {host for host, names in networks.items() if "Socket" in names}
    return sorted(sockets) if len(sockets) * 2 <= len(networks) else []


def oddities(evidence: Evidence) -> list[str]:
    """Return what works but not as it should, the worst first."""
    found = []
    network, networks = evidence.network, evidence.network.networks
    odd = slow_hosts(evidence)
    if odd:
        found.append(f"{', '.join(odd[:8])}: TCP sockets, while {len(networks) - len(odd)} other hosts use RDMA")
    elif len(networks) > 1 and all("Socket" in names for names in networks.values()):
        found.append(f"{len(networks)} nodes talk over TCP sockets, many times slower than InfiniBand or RoCE")
    found += _odd_ones("NCCL version", network.versions)
    found += _odd_ones("interface for NCCL's start", network.interfaces)
    if network.shm_hosts:
        hosts = sorted(filter(None, network.shm_hosts))
        found.append(f"GPUs of one node talk through host memory (SHM): {', '.join(hosts[:8]) or 'some ranks'}")
    if len(set(network.hcas.values())) > 1:
        most = max(network.hcas.values())
        fewer = sorted(host for host, count in network.hcas.items() if count < most)
        found.append(f"{', '.join(fewer[:8])}: fewer HCAs than the {most} of the other hosts")
    for blamed in evidence.blamed("warning"):
        event = blamed.group.first
        if (
            isinstance(event, Finding)
            and event.rule != "nccl-path-shm"
            and evidence.nccl.matters(event)
            and not (event.rule == "nccl-gdr-off" and network.gdr)
        ):
            found.append(sentence(blamed))
    return found


def _odd_ones(what: str, hosts: dict[str, set[str]]) -> list[str]:
    """Say which hosts differ from the most in something that should be the same everywhere."""
    if len(hosts) < 2:
        return []
    most = max(hosts, key=lambda value: len(hosts[value]))
    odd = [f"{value} on {', '.join(sorted(names)[:4]) or 'some'}" for value, names in hosts.items() if value != most]
    return [f"another {what} than {most}: {'; '.join(odd[:4])}"]


def fix_of(evidence: Evidence, text: str) -> str | None:
    """Return what to do about an oddity."""
    for blamed in evidence.blamed("warning"):
        if sentence(blamed) == text and (fix := evidence.fix(blamed.group.first)) is not None:
            return fix
    return next((fix for words, fix in _FIXES if words in text), None)


def hosts_of(evidence: Evidence, text: str) -> list[str]:
    """Return the hosts that an oddity is about, where they are the smaller part."""
    if "TCP sockets" in text:
        return slow_hosts(evidence)
    if "fewer HCAs" in text:
        most = max(evidence.network.hcas.values(), default=0)
        fewer = sorted(host for host, count in evidence.network.hcas.items() if count < most)
        return fewer if len(fewer) * 2 <= len(evidence.network.hcas) else []
    return []


def sentence(blamed: Blamed) -> str:
    """Return an error in words, the same for all processes that have it."""
    event = blamed.group.first
    if isinstance(event, Finding):
        return event.say
    if isinstance(event, Traceback):
        return event.say or event.said
    if isinstance(event, ProcessEnd):
        first = ", the first to fail" if event.root_cause else ""
        return f"rank {event.rank} ended with {describe_code(event.exit_code)}{first}"
    raise TypeError(type(event))


def odd_ones(evidence: Evidence) -> list[str]:
    """Say which ranks and hosts differ from the others: in how far they came, in saying nothing, in their network."""
    found = []
    reached = {
        rank: event.iteration
        for rank, event in evidence.seen.items()
        if isinstance(event, Iteration) and event.iteration is not None
    }
    if len(reached) > 2:
        least, most = min(reached.values()), max(reached.values())
        behind = sorted(rank for rank, iteration in reached.items() if iteration == least)
        if least < most and len(behind) * 2 <= len(reached):
            found.append(f"{ranks_in_words(behind)} stopped at iteration {least}, others reached {most}")
    world = evidence.identity.world_size
    silent = sorted(set(range(world)) - evidence.seen.keys()) if world else []
    if silent and len(silent) * 2 <= world:
        found.append(f"{ranks_in_words(silent)} wrote nothing")
    complaining = {rank for blamed in evidence.blamed("follower", "symptom") for rank in blamed.group.ranks}
    quiet = sorted(evidence.seen.keys() - complaining)
    if complaining and quiet and len(quiet) * 2 <= len(evidence.seen):
        found.append(f"{ranks_in_words(quiet)} did not complain, {len(complaining)} others did")
    found += [text for text in oddities(evidence) if "another " in text or "while " in text or "fewer" in text]
    return found
