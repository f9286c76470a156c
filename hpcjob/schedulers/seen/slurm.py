"""Slurm: ``scontrol show partition``, ``sinfo``, ``sacctmgr``. Source: their man pages, 22.05."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcjob.schedulers.commands import user_name
from hpcjob.schedulers.seen import Ask, Seen, SeenQueue
from hpcjob.units import seconds_of

_GPUS = re.compile(r"(?:^|,)gpu:(?:[^:,(]+:)?(\d+)")


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


def _queues(text: str, shapes: dict[str, tuple[int, float, int]]) -> list[SeenQueue]:
    found = []
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" not in fields:
            continue
        name = fields["PartitionName"]
        limits = [int(fields[key]) for key in ("MaxNodes", "TotalNodes") if fields.get(key, "").isdigit()]
        cores, memory_gib, gpus = shapes.get(name, (None, None, None))
        found.append(
            SeenQueue(
                name,
                nodes=min(limits, default=None),
                walltime_s=seconds_of(fields.get("MaxTime", "")) or None,
                gpus=gpus,
                cores=cores,
                memory_gib=memory_gib,
                is_default=fields.get("Default") == "YES",
                is_open=fields.get("State", "UP") == "UP",
            )
        )
    return found


def _shapes(text: str) -> dict[str, tuple[int, float, int]]:
    """Return cores, memory in GiB and GPUs of the smallest node of each partition; ``72+`` is of several kinds."""
    shapes: dict[str, tuple[int, float, int]] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        cpus, memory, gres = [*rest.split("|", 2), "", ""][:3]
        if not cpus.rstrip("+").isdigit() or not memory.rstrip("+").isdigit():
            continue
        gpus = sum(int(count) for count in _GPUS.findall(gres))
        one = (int(cpus.rstrip("+")), int(memory.rstrip("+")) / 1024, gpus)
        known = shapes.get(name, one)
        shapes[name] = (min(known[0], one[0]), min(known[1], one[1]), min(known[2], one[2]))
    return shapes
