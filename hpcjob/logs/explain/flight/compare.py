"""Whom the ranks waited for, by their flight recorders.

A rank that waits in one group is not to blame for what it does not do in another, so the search goes from each missing
rank to the group in which it waits itself, until it comes to a rank that waits nowhere, to calls that do not fit
together, or back to where it was: then ranks call collectives of several groups in different orders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcjob.logs import topics
from hpcjob.logs.explain.flight.groups import GroupCalls, groups_of
from hpcjob.logs.explain.verdict import Quote
from hpcjob.logs.fold import ranks_in_words
from hpcjob.logs.suspicion import Suspicion

if TYPE_CHECKING:
    from hpcjob.logs.explain.evidence import Evidence

_QUOTES = 4
_MISSING = (
    "Look at what that rank did instead (py-spy dump while it hangs; its last lines): slow data, a save, a branch that "
    "the other ranks do not take, an exception that was caught, or a GPU that hangs."
)
_DIFFERENT = "All ranks must make the same calls with the same sizes: compare code, settings and data of these ranks."
_NOT_STARTED = "That rank's GPU or stream is busy with something else or hangs: look for an Xid in its kernel log."


def odd_call(evidence: Evidence) -> Suspicion | None:
    """Return the rank that did not make a call that the others made, or made another one; None where all is alike."""
    if len(evidence.dumps) < 2:
        return None
    groups = groups_of(evidence.dumps, range(evidence.identity.world_size))
    for group in groups:
        found = _mismatch(group, evidence) or _missing(group, groups, evidence)
        if found is not None:
            return found
    for group in groups:
        if (found := _not_started(group, evidence)) is not None:
            return found
    return None


def _mismatch(group: GroupCalls, evidence: Evidence) -> Suspicion | None:
    numbers = sorted({number for calls in group.calls.values() for number in calls})
    for number in numbers:
        calls = group.different(number)
        if not calls:
            continue
        odd = group.rare(calls)
        other = next(rank for rank in calls if rank not in odd)
        return _suspicion(
            topics.PROGRAM,
            f"{ranks_in_words(odd)} called {calls[odd[0]].shown} as collective {number} of {_name(group)}, "
            f"{ranks_in_words([rank for rank in calls if rank not in odd])} called {calls[other].shown}",
            _DIFFERENT,
            odd,
            evidence,
            [_quote(rank, group, number, evidence) for rank in (odd[0], other)],
        )
    return None


def _missing(group: GroupCalls, groups: list[GroupCalls], evidence: Evidence) -> Suspicion | None:
    absent = _absent(group)
    seen = {group.name}
    while absent:
        other = next((one for one in groups if one.name not in seen and _waits(one, absent)), None)
        if other is None:
            break
        further = _absent(other)
        if not further:
            break
        seen.add(other.name)
        group, absent = other, further
    if not absent:
        return None
    back = next((one for one in groups if one.name in seen and one is not group and _waits(one, absent)), None)
    if back is not None:
        return _suspicion(
            topics.PROGRAM,
            f"ranks wait for each other in {_name(group)} and in {_name(back)}: they call collectives of these groups "
            "in different orders",
            "Call collectives of different groups in the same order on all ranks (CUDA_DEVICE_MAX_CONNECTIONS=1 for "
            "overlapped tensor parallelism).",
            absent,
            evidence,
            [_quote(rank, one, one.last(rank), evidence) for one in (group, back) for rank in list(one.calls)[:1]],
        )
    here = [rank for rank in group.members if rank in group.calls and rank not in absent]
    number = max(group.last(rank) for rank in absent) + 1
    if absent[0] not in group.calls:
        number = min((call.sequence for rank in here if (call := group.pending(rank)) is not None), default=number)
    called = next((group.calls[rank][number] for rank in here if number in group.calls[rank]), None)
    what = "" if called is None else f" ({called.shown}{f' at {called.at}' if called.at else ''})"
    dumped = "" if absent[0] in evidence.dumps else ", and left no dump"
    return _suspicion(
        topics.TIMEOUT,
        f"{ranks_in_words(absent)} did not come to collective {number} of {_name(group)}{what}{dumped}; "
        f"{ranks_in_words(here)} waited in it",
        _MISSING,
        absent,
        evidence,
        [_quote(absent[0], group, group.last(absent[0]), evidence), _quote(here[0], group, number, evidence)],
    )


def _absent(group: GroupCalls) -> list[int]:
    """Return the ranks that called less than the others, unless they are the most; those without a dump too."""
    lasts = {rank: group.last(rank) for rank in group.members}
    most = max(lasts.values())
    if all(number == most for number in lasts.values()):
        return []
    waiting = [rank for rank, number in lasts.items() if number == most]
    if all(group.pending(rank) is None for rank in waiting):
        return []  # nobody waits: the others have only not come so far yet
    return sorted(rank for rank, number in lasts.items() if number == min(lasts.values()))


def _waits(group: GroupCalls, ranks: list[int]) -> bool:
    return any(group.pending(rank) is not None for rank in ranks if rank in group.members)


def _not_started(group: GroupCalls, evidence: Evidence) -> Suspicion | None:
    """All made the same calls; on some GPUs the last one did not begin, on the others it did."""
    pending = {rank: call for rank in group.members if (call := group.pending(rank)) is not None}
    started = [rank for rank, call in pending.items() if call.state == "started"]
    waiting = [rank for rank, call in pending.items() if call.state == "scheduled"]
    if not started or not waiting or len(waiting) > len(started):
        return None
    call = pending[waiting[0]]
    return _suspicion(
        topics.TIMEOUT,
        f"{ranks_in_words(waiting)} called collective {call.sequence} of {_name(group)} ({call.shown}), and it never "
        f"began on the GPU; {ranks_in_words(started)} waited in it",
        _NOT_STARTED,
        waiting,
        evidence,
        [_quote(rank, group, pending[rank].sequence, evidence) for rank in (waiting[0], started[0])],
    )


def _suspicion(
    code: int, cause: str, fix: str, ranks: list[int], evidence: Evidence, quotes: list[Quote | None]
) -> Suspicion:
    return Suspicion(
        code,
        cause,
        fix,
        rank=ranks[0],
        host=evidence.identity.host_of.get(ranks[0]),
        ranks=ranks,
        quotes=[quote for quote in quotes if quote is not None][:_QUOTES],
    )


def _quote(rank: int, group: GroupCalls, number: int, evidence: Evidence) -> Quote | None:
    call = group.calls.get(rank, {}).get(number)
    dump = evidence.dumps.get(rank)
    if call is None or dump is None:
        return None
    place = f" at {call.at}" if call.at else ""
    text = f"collective {number} of {_name(group)}: {call.shown}{place}, {call.state}"
    return Quote(source=dump.source, text=text, rank=rank, host=evidence.identity.host_of.get(rank))


def _name(group: GroupCalls) -> str:
    return group.title or f"group {group.name or '0'}"
