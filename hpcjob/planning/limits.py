"""The queue of a job, and what that queue allows: nodes, walltime, node hours."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.planning.queues import AUTO, choose
from hpcjob.profile import ClusterProfile, Limits, Queue
from hpcjob.units import format_clock, parse_walltime_s
from neoxlite.common.counting import counted
from neoxlite.common.near import near

_HOUR_S = 3600
_SHORT_S = 100
_MINUTES = re.compile(r"\d+:\d+")


def queue_of(job: JobFile, profile: ClusterProfile) -> tuple[str | None, list[str]]:
    """Return the queue of ``job``, and how it was chosen if it was. Raises InputError where none takes it."""
    if job.queue == AUTO:
        return choose(job, profile)
    of_kind = profile.scheduler.cpu_resource if job.kind != "train" else None
    return job.queue or of_kind or profile.scheduler.resource, []


def at_queue(profile: ClusterProfile, queue: str | None, nodes: int) -> tuple[ClusterProfile, list[str]]:
    """Return ``profile`` with the node and the limits of ``queue``, and notes.

    A queue that is not listed is not refused: it may be a reservation or belong to a group.

    Raises:
        InputError: the queue does not allow so many nodes.
    """
    known = profile.queues.get(queue or "")
    if known is None and profile.queues and queue:
        free = msgspec.structs.replace(profile.limits, nodes=None, walltime=None, node_hours=None)
        return msgspec.structs.replace(profile, limits=free), [_unknown(profile, queue)]
    limits = _limits(profile.limits, known, nodes)
    if limits.nodes and nodes > limits.nodes:
        raise InputError(
            f"nodes: {nodes} requested, but {where(profile, queue)} allows {limits.nodes} per job",
            hint=f"ask for at most {counted(limits.nodes, 'node')}",
        )
    node = known.node if known and known.node else profile.node
    return msgspec.structs.replace(profile, limits=limits, node=node), []


def _unknown(profile: ClusterProfile, queue: str) -> str:
    alike = near(queue, profile.queues)
    told = f"queue {queue} is not among those known of {profile.name}, its limits are not checked"
    return told + (f" (near: {', '.join(alike)})" if alike else "")


def _limits(limits: Limits, queue: Queue | None, nodes: int) -> Limits:
    """Return the limits for a job of so many nodes: the queue's, and of all queues where it says nothing."""
    if queue and queue.sizes:
        most = queue.sizes[-1].nodes
        walltime = next((size.walltime for size in queue.sizes if nodes <= size.nodes), queue.sizes[-1].walltime)
        limits = msgspec.structs.replace(limits, nodes=most, walltime=walltime)
    if queue and queue.node_hours:
        limits = msgspec.structs.replace(limits, node_hours=queue.node_hours)
    return limits


def walltime_s(job: JobFile, profile: ClusterProfile, queue: str | None) -> int:
    """Return the walltime in seconds: the one asked for, else the profile's default as far as the limits allow it.

    Args:
        profile: as `at_queue` gave it.

    Raises:
        InputError: it is no duration, or longer than the queue allows.
    """
    longest_s, words = _longest(profile, job.nodes)
    if job.walltime is None:
        default_s = parse_walltime_s(profile.limits.default_walltime, _key(profile, "default_walltime"))
        return min(default_s, longest_s or default_s)
    asked_s = parse_walltime_s(job.walltime)
    if longest_s and asked_s > longest_s:
        raise InputError(
            f"walltime: {format_clock(asked_s)} is longer than {where(profile, queue)} allows for "
            f"{counted(job.nodes, 'node')} ({words})",
            hint="ask for less and resume from the checkpoint (`stop_before_s` saves in time)",
        )
    return asked_s


def short_walltime(job: JobFile, limit_s: int) -> Iterator[str]:
    """Yield a note where 12 is taken for seconds, or 12:00 for minutes, and more may have been meant."""
    asked = str(job.walltime or "").strip()
    if asked.isdecimal() and limit_s < _SHORT_S:
        yield f"walltime: {asked} is taken for seconds; write {asked}h for hours, {asked}m for minutes"
    elif _MINUTES.fullmatch(asked):
        yield f"walltime: {asked} is taken for minutes and seconds; write {asked}:00 for hours and minutes"


def _longest(profile: ClusterProfile, nodes: int) -> tuple[int | None, str | None]:
    """Return the longest walltime of a job of so many nodes, in seconds and in words; None: it has no limit."""
    words, node_hours = profile.limits.walltime, profile.limits.node_hours
    longest_s = parse_walltime_s(words, _key(profile, "walltime")) if words else None
    if node_hours and (not longest_s or node_hours * _HOUR_S < longest_s * nodes):
        longest_s = int(node_hours * _HOUR_S // nodes)
        words = f"{format_clock(longest_s)}, of {node_hours:g} node-hours"
    return longest_s, words


def _key(profile: ClusterProfile, key: str) -> str:
    return f"profile {profile.name}: limits.{key}"


def where(profile: ClusterProfile, queue: str | None) -> str:
    """Return what sets the limits, for messages: ``abci3 (rt_HF)``."""
    return f"{profile.name} ({queue})" if queue else profile.name
