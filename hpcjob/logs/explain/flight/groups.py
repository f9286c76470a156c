"""The calls of each process group, rank by rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from hpcjob.logs.explain.flight.dump import Call, Dump

# Those whose inputs must be of one size on all ranks.
_EVEN = ("all_reduce", "allreduce", "_all_gather_base", "_reduce_scatter_base")


class GroupCalls(msgspec.Struct, frozen=True):
    """One process group.

    Attributes:
        members: its ranks; where the dumps do not tell, those that called anything in it.
        calls: the collectives of each rank that is recorded, by number.
        completed: number of the last collective of each rank that came to its end.
    """

    name: str
    title: str
    members: tuple[int, ...]
    calls: dict[int, dict[int, Call]]
    completed: dict[int, int]

    def last(self, rank: int) -> int:
        """Return the number of the last collective that a rank called."""
        return max(self.calls.get(rank, {}), default=self.completed.get(rank, 0))

    def pending(self, rank: int) -> Call | None:
        """Return the first collective that a rank called and that did not come to its end."""
        done = self.completed.get(rank, 0)
        waiting = [call for number, call in self.calls.get(rank, {}).items() if number > done]
        return min(
            (call for call in waiting if call.state != "completed"), key=lambda call: call.sequence, default=None
        )

    def different(self, sequence: int) -> dict[int, Call]:
        """Return the calls of one number if they differ in what must be alike, else nothing."""
        calls = {rank: of[sequence] for rank, of in self.calls.items() if sequence in of}
        return calls if len({_kind(call) for call in calls.values()}) > 1 else {}

    def rare(self, calls: Mapping[int, Call]) -> list[int]:
        """Return the ranks whose call is another than that of the most; of a tie those of the higher ranks."""
        counts = Counter(_kind(call) for _, call in sorted(calls.items()))
        usual = counts.most_common(1)[0][0]
        return sorted(rank for rank, call in calls.items() if _kind(call) != usual)


def _kind(call: Call) -> tuple[object, ...]:
    even = call.operation.startswith(_EVEN)
    return (call.operation, call.dtypes, call.sizes) if even else (call.operation,)


def groups_of(dumps: Mapping[int, Dump], world: Iterable[int]) -> list[GroupCalls]:
    """Return the groups of a job, the largest first.

    Args:
        world: all ranks, as far as known; the group that all recorded ranks use has them as members.
    """
    calls: dict[str, dict[int, dict[int, Call]]] = {}
    completed: dict[str, dict[int, int]] = {}
    titles: dict[str, str] = {}
    members: dict[str, set[int]] = {}
    for rank, dump in dumps.items():
        titles |= dump.titles
        for name, recorded in dump.members.items():
            members.setdefault(name, set()).update(recorded)
        for call in dump.calls:
            if not call.p2p:
                calls.setdefault(call.group, {}).setdefault(rank, {})[call.sequence] = call
        for name, number in dump.completed.items():
            completed.setdefault(name, {})[rank] = number
    found = []
    for name, by_rank in calls.items():
        ranks = members.get(name) or (set(world) | set(dumps) if len(by_rank) == len(dumps) else set(by_rank))
        done = {rank: _done(by_rank.get(rank, {}), completed.get(name, {}).get(rank)) for rank in by_rank}
        found.append(GroupCalls(name, titles.get(name, ""), tuple(sorted(ranks)), by_rank, done))
    return sorted(found, key=lambda group: (-len(group.members), group.name))


def _done(calls: Mapping[int, Call], told: int | None) -> int:
    ended = max((number for number, call in calls.items() if call.state == "completed"), default=0)
    return max(ended, told or 0)
