"""What a site's own commands say of its queues, read only: one module a scheduler, each with `look`.

Nothing here submits, and a command that fails is told, not raised.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from hpcjob.profile import ClusterProfile

Ask = Callable[[Sequence[str]], "str | None"]
"""Runs a command and returns what it printed on stdout; None where it failed, which is noted."""


@dataclass(frozen=True)
class SeenQueue:
    """A queue as the scheduler tells of it; None: it does not say, or there is no limit.

    Attributes:
        nodes: of one job. walltime_s: of one job.
        gpus, cores, memory_gib: of its smallest node. gpu: model of the GPUs of all its nodes, in the scheduler's word.
        is_default: jobs that name no queue go here. is_open: it takes jobs.
    """

    name: str
    nodes: int | None = None
    walltime_s: int | None = None
    gpus: int | None = None
    gpu: str | None = None
    cores: int | None = None
    memory_gib: float | None = None
    is_default: bool = False
    is_open: bool = True


@dataclass
class Seen:
    """What was seen of a scheduler.

    Attributes:
        version: in its own words; None: its command did not answer.
        queues: by name; None: they could not be listed.
        source: the command that listed them.
        says_limits: whether that command tells limits and nodes, not names alone.
        array: largest array (Slurm: MaxArraySize).
        accounts: that this user may name; None: not known.
    """

    version: str | None = None
    queues: dict[str, SeenQueue] | None = None
    source: str = ""
    says_limits: bool = True
    array: int | None = None
    accounts: list[str] | None = None
    accounts_source: str = field(default="id -Gn")


def look(profile: ClusterProfile, ask: Ask) -> Seen:
    """Return what the commands of the profile's scheduler say. Never raises."""
    module = importlib.import_module(f"hpcjob.schedulers.seen.{profile.scheduler.type}")
    seen = cast("Seen", module.look(ask, [*profile.queues, *_named(profile)]))
    if seen.accounts is None and profile.scheduler.account != "none":
        groups = ask(["id", "-Gn"])
        seen.accounts = groups.split() if groups else None
    return seen


def _named(profile: ClusterProfile) -> list[str]:
    return [name for name in (profile.scheduler.resource, profile.scheduler.cpu_resource) if name]
