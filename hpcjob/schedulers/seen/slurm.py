"""Slurm: ``scontrol show partition``, ``sinfo``, ``sacctmgr``. Source: their man pages, 22.05."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from hpcjob.schedulers.commands import user_name
from hpcjob.schedulers.seen import Ask, Seen, SeenQueue
from hpcjob.units import seconds_of

_GPUS = re.compile(r"(?:^|,)gpu:(?:([^:,(]+):)?(\d+)")


class _Shape(NamedTuple):
    """The smallest node of a partition, and the models of the GPUs of all; None: GPUs whose model is not told."""

    cores: int
    memory_gib: float
    gpus: int
    models: frozenset[str | None]


def look(ask: Ask, names: Sequence[str]) -> Seen:
    """Return what Slurm says."""
    seen = Seen(version=(ask(["sinfo", "--version"]) or "").strip() or None)
    if seen.version is None:
        return seen
    partitions = ask(["scontrol", "show", "partition", "--oneliner"])
    if partitions is not None:
        shapes = _shapes(ask(["sinfo", "--noheader", "--format=%R|%c|%m|%G"]) or "")
        seen.queues = {queue.name: queue for queue in _queues(partitions, shapes)}
        seen.source = "scontrol show partition; sinfo"
    config = ask(["scontrol", "show", "config"]) or ""
    if found := re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE):
        seen.array = int(found[1])
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "assoc", f"user={user_name()}", "format=account"]
    accounts = ask(command)
    if accounts is not None:
        seen.accounts = sorted(set(accounts.split()))
        seen.accounts_source = "sacctmgr show assoc"
    return seen


def _queues(text: str, shapes: dict[str, _Shape]) -> list[SeenQueue]:
    found = []
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" not in fields:
            continue
        name = fields["PartitionName"]
        limits = [int(fields[key]) for key in ("MaxNodes", "TotalNodes") if fields.get(key, "").isdigit()]
        shape = shapes.get(name)
        found.append(
            SeenQueue(
                name,
                nodes=min(limits, default=None),
                walltime_s=seconds_of(fields.get("MaxTime", "")) or None,
                gpus=shape.gpus if shape else None,
                gpu=next(iter(shape.models)) if shape and len(shape.models) == 1 else None,
                cores=shape.cores if shape else None,
                memory_gib=shape.memory_gib if shape else None,
                is_default=fields.get("Default") == "YES",
                is_open=fields.get("State", "UP") == "UP",
            )
        )
    return found


def _shapes(text: str) -> dict[str, _Shape]:
    """Return what the nodes of each partition have; ``72+`` is of several kinds, ``gpu:h100:8`` has a type."""
    shapes: dict[str, _Shape] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        cpus, memory, gres = [*rest.split("|", 2), "", ""][:3]
        if not cpus.rstrip("+").isdigit() or not memory.rstrip("+").isdigit():
            continue
        found = _GPUS.findall(gres)
        one = _Shape(
            int(cpus.rstrip("+")),
            int(memory.rstrip("+")) / 1024,
            sum(int(count) for _, count in found),
            frozenset(model or None for model, _ in found),
        )
        known = shapes.get(name, one)
        shapes[name] = _Shape(
            min(known.cores, one.cores),
            min(known.memory_gib, one.memory_gib),
            min(known.gpus, one.gpus),
            known.models | one.models,
        )
    return shapes
