"""Who is to blame where no line says so: ranks that never came, hosts that fell silent, ranks waited for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hpcjob.logs import topics
from hpcjob.logs.fold import ranks_in_words
from hpcjob.logs.identity import is_name, same_host
from hpcjob.logs.suspicion import Suspicion

if TYPE_CHECKING:
    from hpcjob.logs.explain.evidence import Evidence

_SHARE_THAT_TELLS = 0.5  # of the ranks must be in the log before a missing one means anything
_WAITING_FOR_ONE_ABSENT = 3  # ranks with a time-out for each whose number is left out: less may be a part of the logs


def not_started(evidence: Evidence) -> Suspicion | None:
    """Ranks of the largest communicator that did not begin, or did not finish its start."""
    for communicator in evidence.nccl.communicators[:1]:
        begun = communicator.started | communicator.complete
        if len(begun) < 2 or len(begun) < communicator.size * _SHARE_THAT_TELLS:
            continue
        silent = set(range(communicator.size)) - begun
        stuck = communicator.started - communicator.complete
        if silent and not communicator.complete:  # one that is complete had all: the log lacks the others
            first = min(silent)
            host = evidence.identity.host_of.get(first)
            return Suspicion(
                topics.LAUNCH,
                f"{ranks_in_words(silent)} of {communicator.size} never reached NCCL initialisation; the others wait "
                "for it",
                "Look at that rank's own output and node: the launcher did not start it, or it failed before.",
                rank=first,
                host=host,
                ranks=sorted(silent),
            )
        if stuck and communicator.complete and len(stuck) * 2 <= communicator.size:
            first = min(stuck)
            return Suspicion(
                topics.NETWORK,
                f"{ranks_in_words(stuck)} of {communicator.size} began NCCL initialisation and did not finish it",
                "Look at the NCCL lines of those ranks: another interface or network than on the others.",
                rank=first,
                host=evidence.identity.host_of.get(first),
                ranks=sorted(stuck),
            )
    return None


def lost_host(evidence: Evidence) -> Suspicion | None:
    """The host that most others say they lost, if it says nothing like that itself."""
    complaining = {
        host for blamed in evidence.blamed("follower", "symptom", "cause") for host in blamed.group.hosts
    } | {
        evidence.identity.host_of.get(rank, "")
        for blamed in evidence.blamed("follower", "symptom", "cause")
        for rank in blamed.group.ranks
    }
    for host, times in evidence.lost.most_common():
        if any(same_host(host, other) for other in complaining):
            continue
        ranks = sorted(evidence.identity.ranks_on(host))
        return Suspicion(
            topics.ENDED,
            f"{host} was lost first: {times} {'process says' if times == 1 else 'processes say'} so, "
            "and nothing from it shows why",
            "Look at that node's kernel log and the scheduler's word on it (it was killed or went down); exclude it.",
            rank=ranks[0] if ranks else None,
            host=host,
            ranks=ranks,
            exclude=is_name(host),
        )
    return None


def waited_for(evidence: Evidence) -> Suspicion | None:
    """The rank whose collective did not come: it has no watchdog message, or the smallest numbers in it."""
    if not evidence.waits:
        return None
    all_ranks = set(range(evidence.identity.world_size)) or set(evidence.seen)
    silent = sorted(all_ranks - evidence.waits.keys())
    share = len(evidence.waits) / len(all_ranks) if all_ranks else 0
    if silent and share >= _SHARE_THAT_TELLS:
        return _waiting(evidence, silent, "did not enter a collective; all others waited for it until the time-out")
    groups = Counter(wait.group for _, wait in sorted(evidence.waits.items()) if wait.group).most_common(1)
    waits = {rank: wait for rank, wait in evidence.waits.items() if wait.group in ("", *(name for name, _ in groups))}
    operations = {rank: wait.operation for rank, wait in waits.items() if wait.operation}
    numbers = {
        rank: number
        for rank, wait in waits.items()
        if (number := wait.enqueued if wait.enqueued is not None else wait.sequence) is not None
    }
    if numbers and min(numbers.values()) < max(numbers.values()):
        least = min(numbers.values())
        behind = sorted(rank for rank, number in numbers.items() if number == least)
        if len(behind) * 2 <= len(numbers):
            return _waiting(evidence, behind, f"stands at collective {least}, the others at {max(numbers.values())}")
    kinds = sorted(set(operations.values()))
    if len(kinds) > 1:
        rare = min(kinds, key=lambda kind: sum(value == kind for value in operations.values()))
        odd = sorted(rank for rank, kind in operations.items() if kind == rare)
        return _waiting(evidence, odd, f"is in {rare} while the others are in another collective")
    quiet = sorted((evidence.seen.keys() & set(silent)) - evidence.aborted)
    if quiet and len(quiet) * 2 <= len(evidence.seen):
        return _waiting(evidence, quiet, f"{'have' if len(quiet) > 1 else 'has'} no time-out while others waited")
    absent = sorted(set(range(max(evidence.waits))) - evidence.waits.keys() - all_ranks)
    if absent and len(absent) * _WAITING_FOR_ONE_ABSENT <= len(evidence.waits):
        others = ranks_in_words(evidence.waits)
        return _waiting(evidence, absent, f"is not in the log; {others} waited until the time-out")
    every = len(waits) > 1 and waits.keys() == set(range(len(evidence.waits)))
    if every and len(set(numbers.values())) == len(kinds) == 1:
        return _all_in(evidence, kinds[0])
    first = next(iter(sorted(evidence.waits)))
    return Suspicion(
        topics.TIMEOUT,
        f"a collective timed out on {ranks_in_words(evidence.waits)}; the log does not show the rank they waited for",
        "Read the logs of all ranks; next time TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_BUFFER_SIZE=2000 (before "
        "torch 2.9 TORCH_NCCL_TRACE_BUFFER_SIZE).",
        ranks=[first],
    )


def _all_in(evidence: Evidence, operation: str) -> Suspicion:
    return Suspicion(
        topics.TIMEOUT,
        f"{ranks_in_words(evidence.waits)} all came to the same {operation}, and it did not end: the transfer itself "
        "hangs, or a rank whose log is not here did not come",
        "If these are all ranks: look at the network and the GPUs (Xid in the kernel logs, ibstat, NCCL_DEBUG=INFO); "
        "else read the logs of the others.",
        ranks=sorted(evidence.waits),
    )


def _waiting(evidence: Evidence, ranks: list[int], what: str) -> Suspicion:
    first = ranks[0]
    host = evidence.identity.host_of.get(first)
    where = f" on {host}" if host and len(ranks) == 1 else ""
    return Suspicion(
        topics.TIMEOUT,
        f"{ranks_in_words(ranks)}{where} {what}",
        "Look at what that rank did (py-spy dump while it hangs; its last lines): slow data, a save, an exception that "
        "was caught, or a GPU that hangs.",
        rank=first,
        host=host,
        ranks=ranks,
    )
