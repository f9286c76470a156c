"""``queue: auto``: which queue of the profile's table a job goes to, by its nodes, GPUs, kind and walltime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.planning.topology import gpus_per_node, procs_per_node
from hpcjob.profile import ClusterProfile, Node, Size
from hpcjob.units import format_clock, parse_memory_gib, parse_walltime_s
from neoxlite.common.counting import counted

AUTO = "auto"
_HOUR_S = 3600


@dataclass(frozen=True)
class Asked:
    """What a job asks of a queue.

    Attributes:
        gpus: of each node; 0 for jobs of other kinds than ``train``, which get a queue without GPUs if there is one.
        cores, memory_gib: of each node; 0: nothing is asked.
    """

    nodes: int
    gpus: int
    walltime_s: int
    cores: int = 0
    memory_gib: float = 0.0

    def __str__(self) -> str:
        parts = [counted(self.nodes, "node") + (f" x {counted(self.gpus, 'GPU')}" if self.gpus else " without GPUs")]
        parts += [f"{counted(self.cores, 'core')} a node"] if self.cores else []
        parts += [f"{self.memory_gib:g} GiB a node"] if self.memory_gib else []
        return f"{', '.join(parts)}, {format_clock(self.walltime_s)}"


@dataclass(frozen=True)
class _Candidate:
    """A queue with its node and limits, as far as they are known."""

    name: str
    node: Node
    sizes: tuple[Size, ...]
    node_hours: float | None

    def longest_s(self, nodes: int) -> int | None:
        """Return the longest walltime of a job of so many nodes; None: no limit is known. 0: it takes none of them."""
        limits = [parse_walltime_s(size.walltime, f"queues.{self.name}") for size in self.sizes if nodes <= size.nodes]
        if self.sizes and not limits:
            return 0
        of_hours = [int(self.node_hours * _HOUR_S // nodes)] if self.node_hours else []
        return min([*limits[:1], *of_hours], default=None)

    def lacks(self, asked: Asked) -> bool:
        """Whether its nodes are too small for the job."""
        node = self.node
        return (
            asked.gpus > node.gpus
            or asked.cores > (node.cores or asked.cores)
            or asked.memory_gib > (node.memory_gib or asked.memory_gib)
        )

    def fits(self, asked: Asked) -> bool:
        """Whether the job may run here."""
        longest_s = self.longest_s(asked.nodes)
        return not self.lacks(asked) and (longest_s is None or asked.walltime_s <= longest_s)

    def order(self, asked: Asked) -> tuple[float, ...]:
        """Return what sorts first the queue that gives least beyond what is asked, then the one with closer limits."""
        longest_s = self.longest_s(asked.nodes)
        most = self.sizes[-1].nodes if self.sizes else 0
        return (
            self.node.gpus - asked.gpus,
            self.node.cores or float("inf"),
            float("inf") if longest_s is None else longest_s,
            most or float("inf"),
        )

    def nearest(self, asked: Asked) -> Iterator[tuple[float, str]]:
        """Yield how far away something is that would fit here, and what."""
        far = 1.0
        words = []
        for have, want, say in (
            (self.node.gpus, asked.gpus, "gpus_per_node: {}"),
            (self.node.cores or asked.cores, asked.cores, "at most {} cores a node"),
            (self.node.memory_gib or asked.memory_gib, asked.memory_gib, "at most {:g} GiB a node"),
        ):
            if want > have:
                far *= want / have if have else 1000
                words.append(say.format(have) if have else "no GPUs")
        also = f", {', '.join(words)}" if words else ""
        longest_s = self.longest_s(asked.nodes)
        if longest_s is None or asked.walltime_s <= longest_s:
            yield far, ", ".join(words)
            return
        if longest_s:
            yield (
                far * asked.walltime_s / longest_s,
                f"{counted(asked.nodes, 'node')} for at most {format_clock(longest_s)}{also}",
            )
        fewer = max((nodes for nodes in range(1, asked.nodes) if self._takes(nodes, asked.walltime_s)), default=0)
        if fewer:
            yield far * asked.nodes / fewer, f"{counted(fewer, 'node')} for {format_clock(asked.walltime_s)}{also}"
        if not longest_s and not fewer:
            most = self.sizes[-1].nodes if self.sizes else 1  # a limit of node hours alone, less than all this needs
            can_s = self.longest_s(most) or 0
            both = asked.nodes / most * max(1.0, asked.walltime_s / max(1, can_s))
            yield far * both, f"{counted(most, 'node')} for at most {format_clock(can_s)}{also}"

    def _takes(self, nodes: int, walltime_s: int) -> bool:
        longest_s = self.longest_s(nodes)
        return longest_s is None or walltime_s <= longest_s


def choose(job: JobFile, profile: ClusterProfile) -> tuple[str | None, list[str]]:
    """Return the queue for ``job`` on ``profile``, and a line on the choice. This machine has none: None.

    Of the queues that take the job, the one whose nodes have least beyond what is asked; of those, the one with the
    shortest limit of time: a short job goes to the queue for short jobs.

    Raises:
        InputError: none takes it (the nearest is named, and what it would take), or the profile lists none.
    """
    if profile.scheduler.type == "local":
        return None, []
    asked = asked_of(job, profile)
    candidates = list(_candidates(profile))
    if not candidates:
        raise InputError(
            f"queue: auto: {profile.name} lists no queues to choose from",
            hint=f"name the queue, or list them: hpcjob profile check --profile {profile.name} --write",
        )
    fitting = [one for one in candidates if one.fits(asked)]
    if not asked.gpus:  # nodes without GPUs first
        fitting = [one for one in fitting if not one.node.gpus] or fitting
    if not fitting:
        raise _none_fits(asked, candidates, profile)
    best = min(fitting, key=lambda one: one.order(asked))
    longest_s = best.longest_s(asked.nodes)
    upto = f" (up to {format_clock(longest_s)} there)" if longest_s else ""
    return best.name, [f"queue: auto: {best.name} of {len(candidates)} queues, for {asked}{upto}"]


def asked_of(job: JobFile, profile: ClusterProfile) -> Asked:
    """Return what ``job`` asks, with the defaults of ``profile``: all GPUs of its node, its walltime."""
    gpus = gpus_per_node(job, profile)
    return Asked(
        nodes=job.nodes,
        gpus=gpus,
        walltime_s=parse_walltime_s(
            profile.limits.default_walltime if job.walltime is None else job.walltime, "walltime"
        ),
        cores=(job.cpus_per_gpu or 0) * procs_per_node(job, gpus),
        memory_gib=0.0 if job.memory is None else parse_memory_gib(job.memory),
    )


def _candidates(profile: ClusterProfile) -> Iterator[_Candidate]:
    limits = profile.limits
    whole = [Size(nodes=limits.nodes, walltime=limits.walltime)] if limits.nodes and limits.walltime else []
    for name, queue in profile.queues.items():
        if queue.auto:
            node_hours = queue.node_hours or limits.node_hours
            yield _Candidate(name, queue.node or profile.node, tuple(queue.sizes or whole), node_hours)


def _none_fits(asked: Asked, candidates: list[_Candidate], profile: ClusterProfile) -> InputError:
    offers = [(far, one.name, words) for one in candidates for far, words in one.nearest(asked) if words]
    _, name, _ = min(offers)
    words = [words for _, other, words in sorted(offers) if other == name]
    return InputError(
        f"queue: auto: no queue of {profile.name} accepts {asked}",
        hint=f"the closest is {name}, which accepts {', or '.join(dict.fromkeys(words))}",
    )
